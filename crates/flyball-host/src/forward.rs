//! A host around another host: most methods forward to it.

/// Implements the named methods of [`Host`](crate::Host) by calling the host in a field:
/// `forward!(inner: kind, name, list);`.
#[macro_export]
macro_rules! forward {
    ($inner:ident: $($method:ident),+) => {
        $($crate::forward!(@ $inner $method);)+
    };
    (@ $inner:ident kind) => { $crate::forward!(@@ $inner kind() -> $crate::Kind); };
    (@ $inner:ident name) => { $crate::forward!(@@ $inner name() -> String); };
    (@ $inner:ident read_into) => {
        $crate::forward!(@@ $inner read_into(path: &str, buffer: &mut Vec<u8>) -> Result<(), $crate::HostError>);
    };
    (@ $inner:ident write) => {
        $crate::forward!(@@ $inner write(path: &str, bytes: &[u8]) -> Result<(), $crate::HostError>);
    };
    (@ $inner:ident make_dir) => {
        $crate::forward!(@@ $inner make_dir(path: &str) -> Result<(), $crate::HostError>);
    };
    (@ $inner:ident remove_dir) => {
        $crate::forward!(@@ $inner remove_dir(path: &str) -> Result<(), $crate::HostError>);
    };
    (@ $inner:ident list) => {
        $crate::forward!(@@ $inner list(path: &str) -> Result<Vec<String>, $crate::HostError>);
    };
    (@ $inner:ident exists) => { $crate::forward!(@@ $inner exists(path: &str) -> bool); };
    (@ $inner:ident writable) => { $crate::forward!(@@ $inner writable(path: &str) -> bool); };
    (@ $inner:ident link) => {
        $crate::forward!(@@ $inner link(path: &str) -> Result<String, $crate::HostError>);
    };
    (@ $inner:ident msr) => {
        $crate::forward!(@@ $inner msr(cpu: u32, register: u32) -> Result<u64, $crate::HostError>);
    };
    (@ $inner:ident cpuid) => {
        $crate::forward!(@@ $inner cpuid(leaf: u32, subleaf: u32) -> Option<[u32; 4]>);
    };
    (@ $inner:ident write_msr) => {
        $crate::forward!(@@ $inner write_msr(cpu: u32, register: u32, value: u64) -> Result<(), $crate::HostError>);
    };
    (@ $inner:ident isst) => {
        $crate::forward!(@@ $inner isst(number: u32, argument: &mut [u8]) -> Result<i32, $crate::HostError>);
    };
    (@ $inner:ident topology_cache) => {
        $crate::forward!(@@ $inner topology_cache() -> Option<std::path::PathBuf>);
    };
    (@ $inner:ident kernel_log) => {
        $crate::forward!(@@ $inner kernel_log() -> Result<String, $crate::HostError>);
    };
    (@ $inner:ident now) => { $crate::forward!(@@ $inner now() -> std::time::Duration); };
    (@ $inner:ident sleep) => { $crate::forward!(@@ $inner sleep(time: std::time::Duration) -> ()); };
    (@@ $inner:ident $method:ident($($argument:ident: $type:ty),*) -> $result:ty) => {
        fn $method(&self, $($argument: $type),*) -> $result {
            self.$inner.$method($($argument),*)
        }
    };
}
