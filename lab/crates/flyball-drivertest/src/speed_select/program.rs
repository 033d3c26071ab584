//! The program that makes ioctls in a guest: a static ELF file for x86-64 of a few hundred bytes,
//! so that a guest needs neither a compiler nor a library.
//!
//! `isst DEVICE NUMBER ARGUMENT [NUMBER ARGUMENT]...` opens DEVICE for reading and writing, makes
//! each call, and prints a line for each: `i RETURNED ARGUMENT`, all in lower-case hexadecimal.
//! NUMBER begins with `0x`; an ARGUMENT without bytes is `-`. The memory after an argument is
//! zeroed up to 4096 bytes. It exits with the errno if the device cannot be opened.

/// Load address of the file. The argument is one page above it, the output another page above.
const BASE: u64 = 0x40_0000;
/// Size in memory.
const MEMORY: u64 = 0x5000;
/// Size of the headers.
const HEADERS: u64 = 64 + 56;

#[rustfmt::skip]
const CODE: &[u8] = &[
    0x4c, 0x8d, 0x64, 0x24, 0x10, // lea r12,[rsp+0x10]
    0x49, 0x8b, 0x3c, 0x24, // mov rdi,[r12]
    0x6a, 0x16, // push 0x16
    0x58, // pop rax
    0x48, 0xf7, 0xd8, // neg rax
    0x48, 0x85, 0xff, // test rdi,rdi
    0x0f, 0x84, 0xe7, 0x00, 0x00, 0x00, // je fail
    0x6a, 0x02, // push 0x2
    0x5e, // pop rsi
    0x6a, 0x02, // push 0x2
    0x58, // pop rax
    0x0f, 0x05, // syscall
    0x85, 0xc0, // test eax,eax
    0x0f, 0x88, 0xd7, 0x00, 0x00, 0x00, // js fail
    0x89, 0xc5, // mov ebp,eax
    0x49, 0x83, 0xc4, 0x08, // add r12,0x8
    // next: the next call
    0x49, 0x8b, 0x34, 0x24, // mov rsi,[r12]
    0x49, 0x8b, 0x7c, 0x24, 0x08, // mov rdi,[r12+0x8]
    0x48, 0x85, 0xf6, // test rsi,rsi
    0x0f, 0x84, 0xbd, 0x00, 0x00, 0x00, // je done
    0x48, 0x85, 0xff, // test rdi,rdi
    0x0f, 0x84, 0xb4, 0x00, 0x00, 0x00, // je done
    0x49, 0x83, 0xc4, 0x10, // add r12,0x10
    0x57, // push rdi
    0x66, 0xad, // lodsw
    0x31, 0xdb, // xor ebx,ebx
    // number: its number
    0xe8, 0xb1, 0x00, 0x00, 0x00, // call digit
    0x78, 0x07, // js argument
    0xc1, 0xe3, 0x04, // shl ebx,0x4
    0x08, 0xc3, // or bl,al
    0xeb, 0xf2, // jmp number
    // argument: the argument, in 4096 bytes of zeros
    0xbf, 0x00, 0x10, 0x40, 0x00, // mov edi,0x401000
    0xb9, 0x00, 0x10, 0x00, 0x00, // mov ecx,0x1000
    0x31, 0xc0, // xor eax,eax
    0xf3, 0xaa, // rep stosb
    0xbf, 0x00, 0x10, 0x40, 0x00, // mov edi,0x401000
    0x5e, // pop rsi
    // hexpair: two digits
    0xe8, 0x8f, 0x00, 0x00, 0x00, // call digit
    0x78, 0x17, // js call
    0x88, 0xc2, // mov dl,al
    0xc0, 0xe2, 0x04, // shl dl,0x4
    0xe8, 0x83, 0x00, 0x00, 0x00, // call digit
    0x78, 0x0b, // js call
    0x08, 0xd0, // or al,dl
    0xaa, // stosb
    0x81, 0xff, 0x00, 0x20, 0x40, 0x00, // cmp edi,0x402000
    0x72, 0xe2, // jb hexpair
    // call: ioctl(device, number, argument)
    0x49, 0x89, 0xfd, // mov r13,rdi
    0x89, 0xef, // mov edi,ebp
    0x89, 0xde, // mov esi,ebx
    0xba, 0x00, 0x10, 0x40, 0x00, // mov edx,0x401000
    0x6a, 0x10, // push 0x10
    0x58, // pop rax
    0x0f, 0x05, // syscall
    0xbf, 0x00, 0x20, 0x40, 0x00, // mov edi,0x402000
    0x48, 0x89, 0xc2, // mov rdx,rax
    0x66, 0xb8, 0x69, 0x20, // mov ax,0x2069
    0x66, 0xab, // stosw
    0x6a, 0x10, // push 0x10
    0x59, // pop rcx
    // result: what it returned
    0x48, 0xc1, 0xc2, 0x04, // rol rdx,0x4
    0x88, 0xd0, // mov al,dl
    0xe8, 0x5c, 0x00, 0x00, 0x00, // call put
    0xff, 0xc9, // dec ecx
    0x75, 0xf1, // jne result
    0xb0, 0x20, // mov al,0x20
    0xaa, // stosb
    0xbe, 0x00, 0x10, 0x40, 0x00, // mov esi,0x401000
    // each: each byte of the argument
    0x4c, 0x39, 0xee, // cmp rsi,r13
    0x73, 0x14, // jae line
    0xac, // lodsb
    0x88, 0xc2, // mov dl,al
    0xc0, 0xe8, 0x04, // shr al,0x4
    0xe8, 0x40, 0x00, 0x00, 0x00, // call put
    0x88, 0xd0, // mov al,dl
    0xe8, 0x39, 0x00, 0x00, 0x00, // call put
    0xeb, 0xe7, // jmp each
    // line: write(1, line, length)
    0xb0, 0x0a, // mov al,0xa
    0xaa, // stosb
    0x89, 0xfa, // mov edx,edi
    0xbe, 0x00, 0x20, 0x40, 0x00, // mov esi,0x402000
    0x29, 0xf2, // sub edx,esi
    0x6a, 0x01, // push 0x1
    0x5f, // pop rdi
    0x6a, 0x01, // push 0x1
    0x58, // pop rax
    0x0f, 0x05, // syscall
    0xe9, 0x31, 0xff, 0xff, 0xff, // jmp next
    // done: exit(0)
    0x31, 0xc0, // xor eax,eax
    // fail: exit(-rax)
    0xf7, 0xd8, // neg eax
    0x89, 0xc7, // mov edi,eax
    0x6a, 0x3c, // push 0x3c
    0x58, // pop rax
    0x0f, 0x05, // syscall
    // digit: the digit at rsi; the sign flag is set if there is none
    0xac, // lodsb
    0x2c, 0x30, // sub al,0x30
    0x78, 0x0b, // js none
    0x3c, 0x0a, // cmp al,0xa
    0x72, 0x04, // jb isdigit
    0x2c, 0x27, // sub al,0x27
    0x78, 0x03, // js none
    // isdigit:
    0x84, 0xc0, // test al,al
    0xc3, // ret
    // none:
    0x0c, 0x80, // or al,0x80
    0xc3, // ret
    // put: the lowest four bits of al as a digit
    0x24, 0x0f, // and al,0xf
    0x04, 0x30, // add al,0x30
    0x3c, 0x39, // cmp al,0x39
    0x76, 0x02, // jbe store
    0x04, 0x27, // add al,0x27
    // store:
    0xaa, // stosb
    0xc3, // ret
];

/// The file's bytes.
pub fn elf() -> Vec<u8> {
    let mut file: Vec<u8> = Vec::new();
    // e_ident: 64 bits, little-endian, version 1.
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // e_type executable, e_machine x86-64, e_version.
    file.extend(2u16.to_le_bytes());
    file.extend(62u16.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    // e_entry, e_phoff, e_shoff.
    for word in [BASE + HEADERS, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0u32.to_le_bytes());
    // e_ehsize, e_phentsize, e_phnum, e_shentsize, e_shnum, e_shstrndx.
    for half in [64u16, 56, 1, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    // One segment: PT_LOAD, readable, writable and executable.
    file.extend(1u32.to_le_bytes());
    file.extend(7u32.to_le_bytes());
    let bytes = HEADERS + CODE.len() as u64;
    // p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, p_align.
    for word in [0, BASE, 0, bytes, MEMORY, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.extend(CODE);
    file
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

    #[test]
    fn it_makes_calls_on_this_host() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("isst");
        fs::write(&path, elf()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let run = |words: &[&str]| {
            let done = Command::new(&path).args(words).output().unwrap();
            (done.status.code(), String::from_utf8(done.stdout).unwrap())
        };
        // ENOTTY, with the argument unchanged.
        let longest = "ab".repeat(4096);
        let long = format!("i ffffffffffffffe7 {longest}\n");
        assert_eq!(run(&["/dev/null", "0x8008fe00", &longest]), (Some(0), long));
        // Two calls: ENOTTY, and FIONREAD on a new terminal, which writes an integer.
        let (code, text) = run(&["/dev/ptmx", "0xc008fe03", "-", "0x541b", "ffffffff"]);
        assert_eq!((code, &*text), (Some(0), "i ffffffffffffffe7 \ni 0000000000000000 00000000\n"));
        assert_eq!(run(&["/no/such/device", "0x1", "-"]).0, Some(2));
        assert_eq!(run(&[]).0, Some(22));
    }
}
