//! A simulated machine's files as a FUSE file system.
//!
//! Files are opened for direct IO, so that each read(2) and write(2) of a program arrives unchanged
//! and its errno is returned at once. As in sysfs, a read at offset 0 reads the value again, and
//! later offsets continue in that text. The machine's clock follows the real one.

use std::{
    collections::HashMap,
    ffi::OsStr,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use fuser::{
    FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    PollEvents, PollFlags, PollNotifier, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyPoll, ReplyWrite, Request, WriteFlags,
};

use super::{
    open::{OpenFile, RealTimeMachine, State, error, lock, take},
    own::{KernelSettings, SETTINGS, WORK},
    wait::{Waiters, Waiting},
};
use crate::{
    errno::{Answer, Errno},
    machine::Kind,
    workload::Several,
};

/// Time for which the kernel may cache directory entries. Files and links are looked up each time,
/// because they disappear with their driver.
const KEEP: Duration = Duration::from_millis(200);

/// The file system: the machine's whole tree.
#[derive(Debug)]
pub struct Files {
    machine: Arc<Mutex<RealTimeMachine>>,
    state: Arc<Mutex<State>>,
    waiters: Waiters,
    born: SystemTime,
}

impl Files {
    pub fn new(machine: Arc<Mutex<RealTimeMachine>>) -> Files {
        let root: Arc<str> = Arc::from("/");
        let state = State {
            inodes: HashMap::from([(root.clone(), 1)]),
            paths: vec![root],
            open: HashMap::new(),
            next: 1,
            work: None,
            running: Several::default(),
            own: KernelSettings::booted(lock(&machine).machine().silicon().cpus() as u32),
        };
        let state = Arc::new(Mutex::new(state));
        let waiters = Waiters::start(&machine, &state);
        Files { machine, state, waiters, born: SystemTime::now() }
    }

    fn path(&self, ino: INodeNo) -> Answer<Arc<str>> {
        // Inodes count from 1, which is the root.
        let index = usize::try_from(ino.0).ok().and_then(|ino| ino.checked_sub(1)).ok_or(Errno::NOENT)?;
        lock(&self.state).paths.get(index).cloned().ok_or(Errno::NOENT)
    }

    fn inode(&self, path: &str) -> u64 {
        let mut state = lock(&self.state);
        if let Some(&ino) = state.inodes.get(path) {
            return ino;
        }
        let path: Arc<str> = Arc::from(path);
        // Never removed: a path keeps its inode, even if a driver removes the file and adds it
        // again.
        state.paths.push(path.clone());
        let ino = state.paths.len() as u64;
        state.inodes.insert(path, ino);
        ino
    }

    fn attributes(&self, ino: u64, kind: &Kind) -> FileAttr {
        let (file_type, perm, size) = match kind {
            Kind::Directory => (FileType::Directory, 0o755, 0),
            // sysfs reports one page for every attribute, so that programs that use the size read
            // enough.
            Kind::File(mode) => (FileType::RegularFile, *mode, 4096),
            Kind::Stream(mode) => (FileType::RegularFile, *mode, 0),
            Kind::Link(target) => (FileType::Symlink, 0o777, target.len() as u64),
            Kind::Msr(_) => (FileType::RegularFile, 0o600, 0),
        };
        FileAttr {
            ino: INodeNo(ino),
            size,
            blocks: 0,
            atime: self.born,
            mtime: self.born,
            ctime: self.born,
            crtime: self.born,
            kind: file_type,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn kind(&self, path: &str) -> Answer<Kind> {
        KernelSettings::kind(path).map_or_else(|| lock(&self.machine).machine().kind(path), Ok)
    }

    /// Starts the workload that was written, in addition to those on other CPUs. Fails with EBUSY
    /// if a running one may use the same CPUs.
    fn start(&self, handle: u64, text: &[u8]) -> Answer {
        let text = std::str::from_utf8(text).map_err(|_| Errno::INVAL)?;
        let mut words = text.split_whitespace();
        let name = words.next().ok_or(Errno::INVAL)?;
        let mut model = crate::workload::Workload::builtin(name).map_err(|_| Errno::INVAL)?;
        let amount: u64 = words.next().unwrap_or("0").parse().map_err(|_| Errno::INVAL)?;
        if amount > 0 {
            model.set_length(amount);
        }
        let pins = crate::text::read_cpu_list(words.next().unwrap_or("")).ok_or(Errno::INVAL)?;
        // Always lock the state before the machine: the other order could deadlock with the
        // waiters' thread (take()).
        let mut state = lock(&self.state);
        let mut paced = lock(&self.machine);
        let machine = paced.machine();
        // Real time passes here, so no two runs are equal.
        let engine = crate::workload::Engine::varied(model, pins.clone(), machine.now().as_nanos() as u64);
        let shared = engine.shared();
        if !state.running.add(&pins, Box::new(engine), shared.clone()) {
            return Err(Errno::BUSY);
        }
        machine.run(Some(Box::new(state.running.clone())));
        if let Some(open) = state.open.get_mut(&handle) {
            open.work = Some(shared.clone());
        }
        state.work = Some(shared);
        Ok(())
    }

    fn is_stream(&self, handle: u64) -> bool {
        let state = lock(&self.state);
        state.open.get(&handle).is_some_and(|open| {
            open.path.starts_with("/sys/kernel/tracing")
                && matches!(lock(&self.machine).machine().kind(&open.path), Ok(Kind::Stream(_)))
        })
    }

    /// Returns the workload's progress.
    fn progress(&self, work: Option<&crate::workload::Shared>) -> Vec<u8> {
        lock(&self.machine).machine();
        let progress = work.map(|work| lock(work).clone()).unwrap_or_default();
        let mut paced = lock(&self.machine);
        if progress.done && paced.machine().is_idle() {
            // The workload's processes have ended.
            paced.machine().run(None);
        }
        let word = if progress.done || work.is_none() { "done" } else { "running" };
        format!("{word} {} {}\n", progress.turns, progress.ns).into_bytes()
    }

    fn describe(&self, path: &str) -> Answer<(FileAttr, Duration)> {
        let kind = self.kind(path)?;
        let keep = if kind == Kind::Directory { KEEP } else { Duration::ZERO };
        Ok((self.attributes(self.inode(path), &kind), keep))
    }

    fn open_file(&self, ino: INodeNo, flags: OpenFlags) -> Answer<u64> {
        let path = self.path(ino)?;
        let kind = self.kind(&path)?;
        let writes = flags.acc_mode() as i32 != libc::O_RDONLY;
        let reads = flags.acc_mode() as i32 != libc::O_WRONLY;
        if let Kind::File(mode) | Kind::Stream(mode) = kind {
            // kernfs refuses access outside the mode even to root (fs/kernfs/file.c,
            // kernfs_fop_open).
            if writes && mode & 0o222 == 0 || reads && mode & 0o444 == 0 {
                return Err(Errno::ACCES);
            }
        }
        let mut state = lock(&self.state);
        let handle = state.next;
        state.next += 1;
        // Opening registers a request, without a constraint until a value is written
        // (cpu_latency_qos_open()).
        if path.ends_with("/cpu_dma_latency") {
            lock(&self.machine).machine().request_latency(handle, -1);
        }
        state
            .open
            .insert(handle, OpenFile { path: path.to_string(), text: Vec::new(), fresh: true, work: None });
        Ok(handle)
    }

    fn read_at(&self, handle: u64, offset: u64, size: usize) -> Answer<Vec<u8>> {
        let mut state = lock(&self.state);
        let work = state.work.clone();
        let State { open, own, .. } = &mut *state;
        let open = open.get_mut(&handle).ok_or(Errno::IO)?;
        if let Some(Kind::File(_)) = KernelSettings::kind(&open.path) {
            if offset == 0 {
                open.text = match open.path.as_str() {
                    WORK => self.progress(open.work.as_ref().or(work.as_ref())),
                    SETTINGS => lock(&self.machine).machine().settings().into_bytes(),
                    path => own.read(path).ok_or(Errno::IO)?.into_bytes(),
                };
            }
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(open.text.len());
            return Ok(open.text[from..from.saturating_add(size).min(open.text.len())].to_vec());
        }
        let mut paced = lock(&self.machine);
        let machine = paced.machine();
        if let Ok(Kind::Msr(cpu)) = machine.kind(&open.path) {
            // Whole registers only, as in arch/x86/kernel/msr.c; every eight bytes read the
            // register again.
            if !size.is_multiple_of(8) {
                return Err(Errno::INVAL);
            }
            let value = machine.read_msr(cpu, offset as u32)?;
            return Ok(value.to_le_bytes().repeat((size / 8).min(512)));
        }
        if offset == 0 || open.fresh {
            machine.read_into(&open.path, &mut open.text)?;
            open.fresh = false;
        }
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(open.text.len());
        let to = from.saturating_add(size).min(open.text.len());
        Ok(open.text[from..to].to_vec())
    }

    fn write_at(&self, handle: u64, offset: u64, data: &[u8]) -> Answer {
        let path = {
            let mut state = lock(&self.state);
            let path = state.open.get(&handle).ok_or(Errno::IO)?.path.clone();
            if let Some(answer) = state.own.write(&path, data) {
                return answer;
            }
            path
        };
        if path == WORK {
            return self.start(handle, data);
        }
        let mut paced = lock(&self.machine);
        if path == SETTINGS {
            // The only command of this file; everything else in it is read-only.
            if data.trim_ascii() != b"reset" {
                return Err(Errno::INVAL);
            }
            paced.reboot();
            let cpus = paced.machine().silicon().cpus() as u32;
            drop(paced);
            // A reboot also resets the served machine's own files.
            lock(&self.state).own = KernelSettings::booted(cpus);
            return Ok(());
        }
        let machine = paced.machine();
        if let Ok(Kind::Msr(cpu)) = machine.kind(&path) {
            if !data.len().is_multiple_of(8) {
                return Err(Errno::INVAL);
            }
            // All values go to one register, as in msr_write().
            for value in data.chunks_exact(8) {
                let value = value.try_into().map(u64::from_le_bytes).map_err(|_| Errno::INVAL)?;
                machine.write_msr(cpu, offset as u32, value)?;
            }
            return Ok(());
        }
        if path.ends_with("/cpu_dma_latency") {
            machine.request_latency(handle, latency(data)?);
            return Ok(());
        }
        machine.write(&path, data)
    }
}

/// Parses the latency written to cpu_dma_latency: four bytes are a binary number, anything else is
/// hexadecimal text.
fn latency(data: &[u8]) -> Answer<i32> {
    match <[u8; 4]>::try_from(data) {
        Ok(bytes) => Ok(i32::from_le_bytes(bytes)),
        Err(_) => crate::text::kstrtoi32(data, 16),
    }
}

impl Filesystem for Files {
    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.path(parent).and_then(|parent| {
            let name = name.to_str().ok_or(Errno::NOENT)?;
            let path = if &*parent == "/" { format!("/{name}") } else { format!("{parent}/{name}") };
            self.describe(&path)
        });
        match found {
            Ok((attributes, keep)) => reply.entry_with_ttls(&keep, &keep, &attributes, Generation(0)),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.path(ino).and_then(|path| self.describe(&path)) {
            Ok((attributes, keep)) => reply.attr(&keep, &attributes),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<fuser::TimeOrNow>,
        _mtime: Option<fuser::TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // `echo x > file` truncates first. sysfs ignores that; tracefs may clear the file.
        if size == Some(0)
            && let Ok(path) = self.path(ino)
            && path.starts_with("/sys/kernel/tracing")
        {
            // A file that cannot be truncated fails at the write.
            let _ = lock(&self.machine).machine().truncate(&path);
        }
        self.getattr(request, ino, handle, reply);
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.path(ino).and_then(|path| lock(&self.machine).machine().readlink(&path)) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn open(&self, _request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_file(ino, flags) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn read(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if self.is_stream(handle.0) {
            let waits = flags.0 & libc::O_NONBLOCK == 0;
            return match take(&self.machine, &self.state, handle.0, size as usize) {
                Ok(bytes) => reply.data(&bytes),
                Err(Errno::AGAIN) if waits => {
                    let (handle, size, thread) = (handle.0, size as usize, request.pid());
                    self.waiters.add(Waiting::Read { handle, size, thread, reply });
                }
                Err(errno) => reply.error(error(errno)),
            };
        }
        match self.read_at(handle.0, offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_at(handle.0, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn mkdir(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.path(parent).and_then(|parent| {
            let name = name.to_str().ok_or(Errno::INVAL)?;
            lock(&self.machine).machine().make_directory(&parent, name)?;
            self.describe(&format!("{parent}/{name}"))
        });
        match made {
            Ok((attributes, keep)) => reply.entry_with_ttls(&keep, &keep, &attributes, Generation(0)),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.path(parent).and_then(|parent| {
            let name = name.to_str().ok_or(Errno::NOENT)?;
            lock(&self.machine).machine().remove_directory(&format!("{parent}/{name}"))
        });
        match removed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn poll(
        &self,
        _request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        notifier: PollNotifier,
        events: PollEvents,
        flags: PollFlags,
        reply: ReplyPoll,
    ) {
        // sysfs attributes without a notification of their own are always ready (fs/kernfs/file.c).
        let mut ready = PollEvents::POLLIN | PollEvents::POLLOUT;
        if self.is_stream(handle.0)
            && let Ok(path) = self.path(ino)
            && !lock(&self.machine).machine().is_ready(&path)
        {
            ready = PollEvents::empty();
            if flags.contains(PollFlags::FUSE_POLL_SCHEDULE_NOTIFY) {
                self.waiters.add(Waiting::Poll { path: path.to_string(), notifier });
            }
        }
        reply.poll(ready & events);
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn release(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let mut state = lock(&self.state);
        let open = state.open.remove(&handle.0);
        // The program that started the workload has ended, and its processes with it.
        if let Some(work) = open.as_ref().and_then(|open| open.work.as_ref()) {
            state.running.end(work);
        }
        drop(state);
        if open.is_some_and(|open| open.path.ends_with("/cpu_dma_latency")) {
            lock(&self.machine).machine().drop_latency(handle.0);
        }
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.path(ino).and_then(|path| {
            let names = match KernelSettings::list(&path) {
                Some(names) => names,
                None => lock(&self.machine).machine().list(&path)?,
            };
            Ok((path, names))
        });
        let (path, names) = match listed {
            Ok(listed) => listed,
            Err(errno) => return reply.error(error(errno)),
        };
        let fixed = [".", ".."].map(str::to_owned);
        // The offset is the number of the next entry: a list that changes meanwhile may skip or
        // repeat a name.
        for (index, name) in fixed.into_iter().chain(names).enumerate().skip(offset as usize) {
            let kind = if name == "." || name == ".." {
                FileType::Directory
            } else {
                let child = if &*path == "/" { format!("/{name}") } else { format!("{path}/{name}") };
                match self.kind(&child) {
                    Ok(Kind::Directory) => FileType::Directory,
                    Ok(Kind::Link(_)) => FileType::Symlink,
                    _ => FileType::RegularFile,
                }
            };
            // No program uses the inode numbers of a listing; lookups return the real ones.
            if reply.add(INodeNo(u64::MAX - 1), index as u64 + 1, kind, &name) {
                break;
            }
        }
        reply.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_binary_or_base_16() {
        assert_eq!(latency(&20i32.to_le_bytes()), Ok(20));
        assert_eq!(latency(b"10"), Ok(16));
        assert_eq!(latency(b"0x1f\n"), Ok(31));
        assert_eq!(latency(b"soon!"), Err(Errno::INVAL));
    }
}
