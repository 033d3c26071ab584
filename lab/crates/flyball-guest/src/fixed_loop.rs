//! A program for guests with a known number of instructions: it only counts down. It measures the
//! closed loop's time, because a shell's loop varies by a percent.

/// The program's file: ten instructions per iteration, then exit code 0.
pub fn program(turns: u32) -> Vec<u8> {
    const AT: u64 = 0x40_0000;
    let mut code = vec![0x48, 0xc7, 0xc1]; // mov $turns,%rcx
    code.extend(turns.to_le_bytes());
    code.extend([0x90; 8]); // nop, eight times
    code.extend([0x48, 0xff, 0xc9]); // dec %rcx
    code.extend([0x75, 0xf3]); // jnz to the first nop
    code.extend([0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05]); // exit(0)
    // Static and without sections: a single segment with the headers and the code, so that the
    // guest needs no loader.
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    elf.extend((AT + 120).to_le_bytes()); // entry
    elf.extend(64u64.to_le_bytes()); // program headers
    elf.extend([0; 12]); // section headers, flags
    elf.extend([64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    elf.extend([1, 0, 0, 0, 5, 0, 0, 0]); // load, read and execute
    let size = 120 + code.len() as u64;
    // Offset 0: the kernel maps whole pages, so a segment's offset and address must be equal modulo
    // the page size.
    for word in [0, AT, AT, size, size, 0x1000] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend(code);
    elf
}

#[cfg(test)]
mod tests {
    use crate::elf::Elf;

    #[test]
    fn it_is_a_static_program() {
        let program = super::program(1000);
        let elf = Elf::new(&program).unwrap();
        assert!(!elf.is_dynamic());
        assert!(program.ends_with(&[0x0f, 0x05]), "it ends with a system call");
        #[cfg(target_arch = "x86_64")]
        {
            use std::{fs, os::unix::fs::PermissionsExt, process::Command};
            let path = tempfile::tempdir().unwrap().keep().join("loop");
            fs::write(&path, &program).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            // A file that another thread's child still has open for writing cannot be executed yet.
            let status = (0..100).find_map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                Command::new(&path).status().ok()
            });
            assert!(status.is_some_and(|status| status.success()));
            let _ = fs::remove_dir_all(path.parent().unwrap());
        }
    }
}
