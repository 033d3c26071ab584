//! A thin supervisor for what files cannot fake: it traces the processes on a served machine with
//! ptrace(2).
//!
//! Programs that look at processors also use the CPUID and RDTSC instructions, set affinity to CPUs
//! that the real machine lacks, raise limits that a real machine of that size would allow, and make
//! calls on /dev/isst_interface. FUSE cannot carry the structures of those calls, because their
//! numbers encode a pointer's size. The supervisor answers these few system calls for the simulated
//! machine. In programs that are known to identify or time processors by the two instructions, it
//! replaces each of them, in the process's memory only, with one that traps. (CPUID faulting would
//! work for every program, but many processors lack it.) Everything else runs unchanged.

#![allow(unsafe_code, reason = "no safe wrapper for ptrace(2)")]

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Arc, Mutex, PoisonError},
};

use super::RealTimeMachine;

/// Programs in which CPUID is answered for the simulated machine.
const USES_CPUID: [&str; 5] =
    ["turbostat", "x86_energy_perf_policy", "cpupower", "intel-speed-select", "cpuid"];

const CPUID: [u8; 2] = [0x0f, 0xa2];
const RDTSC: [u8; 2] = [0x0f, 0x31];
/// ud2: the trap that replaces both instructions.
const TRAP: [u8; 2] = [0x0f, 0x0b];

/// System calls that the supervisor answers.
const CALLS: [libc::c_long; 8] = [
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getaffinity,
    libc::SYS_prlimit64,
    libc::SYS_setrlimit,
    libc::SYS_setpriority,
    libc::SYS_getpriority,
    libc::SYS_uname,
    libc::SYS_syslog,
];

/// Puts the calling process under its parent's supervision, and stops until the parent continues
/// it. Call it right before exec, in a process with one thread.
pub fn submit() -> io::Result<()> {
    // SAFETY: PTRACE_TRACEME takes no pointers.
    if unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: raise(2) of SIGSTOP only stops the process; the supervisor continues it.
    unsafe { libc::raise(libc::SIGSTOP) };
    filter()
}

/// The supervisor also answers ioctl(2), but only requests of this type (bits 15:8 of the number).
const IOCTL_TYPE: u32 = 0xfe00;

/// Installs a seccomp filter that passes these system calls to the supervisor.
fn filter() -> io::Result<()> {
    let load =
        libc::sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: 0 };
    let answer = |k| libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k };
    let equal = |k, jt, jf| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt,
        jf,
        k,
    };
    let mut program = vec![load];
    for (index, call) in CALLS.iter().enumerate() {
        // On a match jump to the last instruction: past the remaining comparisons and the five
        // instructions after them.
        let distance = (CALLS.len() - index - 1 + 5) as u8;
        program.push(equal(*call as u32, distance, 0));
    }
    program.push(equal(libc::SYS_ioctl as u32, 0, 3));
    // The lower half of the second argument is the request, which contains the type.
    program.push(libc::sock_filter { k: 24, ..load });
    program.push(libc::sock_filter {
        code: (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: 0xff00,
    });
    program.push(equal(IOCTL_TYPE, 1, 0));
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program.push(answer(libc::SECCOMP_RET_TRACE));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let install = || {
        // SAFETY: the program and its instructions live until the call returns; the kernel copies
        // them.
        let result = unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, std::ptr::from_ref(&filter))
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    install().or_else(|error| {
        if error.raw_os_error() != Some(libc::EACCES) {
            return Err(error);
        }
        // Without privilege a filter is only allowed if no program can gain any.
        // SAFETY: PR_SET_NO_NEW_PRIVS takes no pointers.
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        install()
    })
}

/// Supervises a child that called [`submit`], and all its descendants, until the child ends. The
/// thread that started the child must call it.
#[derive(Debug)]
pub struct Supervisor {
    machine: Arc<Mutex<RealTimeMachine>>,
    cpus: u32,
    /// Replaced instructions by address. Programs can have different ones at one address.
    traps: HashMap<u64, [u8; 2]>,
    /// Affinity that threads requested.
    affinity: HashMap<i32, Vec<u8>>,
    known: HashSet<i32>,
    /// Priorities that threads requested but were denied.
    priority: HashMap<i32, i32>,
}

fn request(what: libc::c_uint, pid: i32, data: usize) -> io::Result<()> {
    // SAFETY: these requests (cont, setoptions) take numbers, no pointers.
    let result = unsafe { libc::ptrace(what, pid, 0usize, data) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn registers(pid: i32) -> io::Result<libc::user_regs_struct> {
    let mut registers = std::mem::MaybeUninit::<libc::user_regs_struct>::uninit();
    // SAFETY: the kernel fills the structure, which has its size and layout; it is read only after
    // success.
    unsafe {
        if libc::ptrace(libc::PTRACE_GETREGS, pid, 0usize, registers.as_mut_ptr()) == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(registers.assume_init())
    }
}

fn set_registers(pid: i32, registers: &libc::user_regs_struct) -> io::Result<()> {
    // SAFETY: the kernel reads the structure, which lives until the call returns.
    let result = unsafe { libc::ptrace(libc::PTRACE_SETREGS, pid, 0usize, std::ptr::from_ref(registers)) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn memory(pid: i32) -> io::Result<File> {
    File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))
}

impl Supervisor {
    /// A supervisor for programs on this machine.
    pub fn new(machine: Arc<Mutex<RealTimeMachine>>) -> Supervisor {
        let cpus = machine.lock().unwrap_or_else(PoisonError::into_inner).machine().silicon().cpus() as u32;
        Supervisor {
            machine,
            cpus,
            traps: HashMap::new(),
            affinity: HashMap::new(),
            known: HashSet::new(),
            priority: HashMap::new(),
        }
    }

    /// Runs until the child ends. Returns its exit code, or 128 plus the number of the signal that
    /// ended it.
    pub fn run(mut self, child: i32) -> io::Result<i32> {
        loop {
            let mut status = 0;
            // SAFETY: waitpid(2) writes one int.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
            if pid < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EINTR) => continue,
                    _ => return Err(error),
                }
            }
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                self.known.remove(&pid);
                self.affinity.remove(&pid);
                self.priority.remove(&pid);
                if pid == child {
                    return Ok(if libc::WIFEXITED(status) {
                        libc::WEXITSTATUS(status)
                    } else {
                        128 + libc::WTERMSIG(status)
                    });
                }
                continue;
            }
            if !libc::WIFSTOPPED(status) {
                continue;
            }
            // A stopped thread can be killed; then there is nothing left to do for it.
            let signal = self.stopped(pid, status).unwrap_or(0);
            let _ = request(libc::PTRACE_CONT, pid, signal as usize);
        }
    }

    /// Handles a thread's stop. Returns the signal to continue with.
    fn stopped(&mut self, pid: i32, status: i32) -> io::Result<i32> {
        let signal = libc::WSTOPSIG(status);
        if self.known.insert(pid) {
            let options = libc::PTRACE_O_TRACEEXEC
                | libc::PTRACE_O_TRACECLONE
                | libc::PTRACE_O_TRACEFORK
                | libc::PTRACE_O_TRACEVFORK
                | libc::PTRACE_O_TRACESECCOMP
                | libc::PTRACE_O_EXITKILL;
            request(libc::PTRACE_SETOPTIONS, pid, options as usize)?;
            if signal == libc::SIGSTOP {
                return Ok(0);
            }
        }
        match status >> 16 {
            0 => {}
            libc::PTRACE_EVENT_EXEC => {
                let _ = self.replace_instructions(pid);
                return Ok(0);
            }
            libc::PTRACE_EVENT_SECCOMP => {
                self.call(pid)?;
                return Ok(0);
            }
            _ => return Ok(0),
        }
        if signal == libc::SIGILL && self.answer_instruction(pid)? {
            return Ok(0);
        }
        Ok(signal)
    }

    /// Replaces CPUID and RDTSC in a program that identifies and times processors with them.
    fn replace_instructions(&mut self, pid: i32) -> io::Result<()> {
        let program = std::fs::read_link(format!("/proc/{pid}/exe"))?;
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !USES_CPUID.contains(&name.as_str()) {
            return Ok(());
        }
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let memory = memory(pid)?;
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let (Some(range), Some(mode)) = (words.next(), words.next()) else { continue };
            if !mode.contains('x') || !line.ends_with(&*program.to_string_lossy()) {
                continue;
            }
            let Some((from, to)) = range.split_once('-') else { continue };
            let (Ok(from), Ok(to)) = (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16)) else {
                continue;
            };
            let mut text = vec![0; usize::try_from(to - from).unwrap_or(0).min(64 << 20)];
            memory.read_exact_at(&mut text, from)?;
            for (at, instruction) in cpuid_and_rdtsc(&text) {
                memory.write_all_at(&TRAP, from + at)?;
                self.traps.insert(from + at, instruction);
            }
        }
        Ok(())
    }

    /// Emulates a replaced instruction and steps over it.
    fn answer_instruction(&mut self, pid: i32) -> io::Result<bool> {
        let mut registers = registers(pid)?;
        let Some(&instruction) = self.traps.get(&registers.rip) else { return Ok(false) };
        let mut bytes = [0; 2];
        memory(pid)?.read_exact_at(&mut bytes, registers.rip)?;
        if bytes != TRAP {
            return Ok(false);
        }
        let cpu = self.affinity.get(&pid).and_then(|mask| first(mask)).unwrap_or(0);
        let mut paced = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        if instruction == RDTSC {
            let time =
                paced.machine().silicon().read_msr(cpu as usize, flyball_silicon::msr::TSC).unwrap_or(0);
            registers.rax = time & 0xffff_ffff;
            registers.rdx = time >> 32;
        } else {
            let (leaf, subleaf) = (registers.rax as u32, registers.rcx as u32);
            let answer = crate::cpuid::answer(paced.machine().silicon(), leaf, subleaf, cpu as usize);
            registers.rax = u64::from(answer[0]);
            registers.rbx = u64::from(answer[1]);
            registers.rcx = u64::from(answer[2]);
            registers.rdx = u64::from(answer[3]);
        }
        drop(paced);
        registers.rip += 2;
        set_registers(pid, &registers)?;
        Ok(true)
    }

    /// Answers a system call for the simulated machine instead of the kernel.
    fn call(&mut self, pid: i32) -> io::Result<()> {
        let mut registers = registers(pid)?;
        let target = |thread: u64| if thread == 0 { pid } else { thread as i32 };
        let size = u64::from(self.cpus.div_ceil(64) * 8);
        let result: Option<i64> = match registers.orig_rax as libc::c_long {
            libc::SYS_sched_setaffinity => {
                let length = registers.rsi.min(1024) as usize;
                let mut mask = vec![0; length];
                memory(pid)?.read_exact_at(&mut mask, registers.rdx)?;
                mask.truncate(size as usize);
                mask.resize(size as usize, 0);
                let mut paced = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
                let machine = paced.machine();
                let any = (0..self.cpus)
                    .any(|cpu| mask[cpu as usize / 8] >> (cpu % 8) & 1 == 1 && machine.is_online(cpu));
                if any {
                    self.affinity.insert(target(registers.rdi), mask);
                    Some(0)
                } else {
                    Some(i64::from(-libc::EINVAL))
                }
            }
            libc::SYS_sched_getaffinity => {
                if registers.rsi < size || registers.rsi % 8 != 0 {
                    Some(i64::from(-libc::EINVAL))
                } else {
                    let mask = match self.affinity.get(&target(registers.rdi)) {
                        Some(mask) => mask.clone(),
                        None => self.online_mask(size as usize),
                    };
                    memory(pid)?.write_all_at(&mask, registers.rdx)?;
                    Some(size as i64)
                }
            }
            libc::SYS_prlimit64 if registers.rsi == libc::RLIMIT_NOFILE as u64 && registers.rdx != 0 => {
                raise_files(target(registers.rdi), registers.rdx, pid)?;
                Some(0)
            }
            libc::SYS_setpriority if registers.rdi == libc::PRIO_PROCESS as u64 => {
                let (thread, wanted) = (target(registers.rsi), registers.rdx as i32);
                if !prioritise(thread, wanted) {
                    // turbostat raises its priority. It runs as root on the machine, but the real
                    // user may lack the privilege.
                    self.priority.insert(thread, wanted);
                }
                Some(0)
            }
            // The raw call returns 1 to 40, never a negative number.
            libc::SYS_getpriority if registers.rdi == libc::PRIO_PROCESS as u64 => {
                self.priority.get(&target(registers.rsi)).map(|nice| i64::from(20 - nice))
            }
            libc::SYS_setrlimit if registers.rdi == libc::RLIMIT_NOFILE as u64 => {
                raise_files(pid, registers.rsi, pid)?;
                Some(0)
            }
            libc::SYS_ioctl => self.speed_select(pid, &registers)?,
            libc::SYS_uname => Some(self.uname(pid, registers.rdi)?),
            libc::SYS_syslog => Some(self.syslog(pid, &registers)?),
            _ => None,
        };
        if let Some(result) = result {
            // An invalid number: the kernel skips the call and keeps this result.
            registers.orig_rax = u64::MAX;
            registers.rax = result as u64;
            set_registers(pid, &registers)?;
        }
        Ok(())
    }

    /// Makes a call on /dev/isst_interface with the structure in the caller's memory; `None` for
    /// calls on other files.
    fn speed_select(&self, pid: i32, registers: &libc::user_regs_struct) -> io::Result<Option<i64>> {
        let file = std::fs::read_link(format!("/proc/{pid}/fd/{}", registers.rdi as i32));
        if !file.is_ok_and(|path| path.ends_with("isst_interface")) {
            return Ok(None);
        }
        let refused = |errno: i32| Ok(Some(i64::from(-errno)));
        let (number, address) = (registers.rsi as u32, registers.rdx);
        let memory = memory(pid)?;
        let mut head = [0; 4];
        let size = match memory.read_exact_at(&mut head, address) {
            Ok(()) => crate::argument_size(number, head),
            Err(_) => 0,
        };
        let mut argument = vec![0; size];
        if size > 0 && memory.read_exact_at(&mut argument, address).is_err() {
            return refused(libc::EFAULT);
        }
        let caller = if is_privileged(pid) { crate::Caller::Root } else { crate::Caller::Ordinary };
        let mut paced = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        let machine = paced.machine();
        let fine = machine.kernel_fault().is_none();
        let answer = machine.isst(number, &mut argument, caller);
        if fine && machine.kernel_fault().is_some() {
            // As the kernel does with a process that it cannot go on with.
            // SAFETY: kill(2) takes no pointers; the process is one that is supervised here.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        drop(paced);
        match answer {
            Ok(result) => match memory.write_all_at(&argument, address) {
                Ok(()) => Ok(Some(result.into())),
                Err(_) => refused(libc::EFAULT),
            },
            Err(errno) => refused(errno.0),
        }
    }

    /// Answers uname(2): the kernel's name, release and version are the machine's.
    fn uname(&self, pid: i32, address: u64) -> io::Result<i64> {
        // SAFETY: all zeros are a valid utsname, which the kernel fills.
        let mut own: libc::utsname = unsafe { std::mem::zeroed() };
        // SAFETY: the structure lives until the call returns.
        if unsafe { libc::uname(&raw mut own) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let release =
            self.machine.lock().unwrap_or_else(PoisonError::into_inner).machine().kernel().release();
        // struct new_utsname: six texts of 65 bytes.
        let set = |field: &mut [libc::c_char; 65], text: &[u8]| {
            *field = [0; 65];
            field.iter_mut().zip(text).for_each(|(to, from)| *to = *from as libc::c_char);
        };
        set(&mut own.release, release.as_bytes());
        set(&mut own.version, b"#1 SMP (flyball sim)");
        let texts = [own.sysname, own.nodename, own.release, own.version, own.machine, own.domainname];
        let answer: Vec<u8> = texts.concat().into_iter().map(|byte| byte as u8).collect();
        Ok(match memory(pid)?.write_all_at(&answer, address) {
            Ok(()) => 0,
            Err(_) => i64::from(-libc::EFAULT),
        })
    }

    /// Answers syslog(2): the log is [`crate::SimMachine::kernel_log`], and nothing clears or
    /// extends it.
    fn syslog(&self, pid: i32, registers: &libc::user_regs_struct) -> io::Result<i64> {
        // SYSLOG_ACTION_READ_ALL, READ_CLEAR and SIZE_BUFFER (syslog(2)).
        const READ_ALL: u64 = 3;
        const READ_CLEAR: u64 = 4;
        const SIZE: u64 = 10;
        let log = self.machine.lock().unwrap_or_else(PoisonError::into_inner).machine().kernel_log();
        Ok(match registers.rdi {
            READ_ALL | READ_CLEAR => {
                // If the buffer is smaller, it gets the end of the log.
                let part = &log.as_bytes()[log.len().saturating_sub(registers.rdx as usize)..];
                match memory(pid)?.write_all_at(part, registers.rsi) {
                    Ok(()) => part.len() as i64,
                    Err(_) => i64::from(-libc::EFAULT),
                }
            }
            SIZE => log.len() as i64,
            _ => 0,
        })
    }

    fn online_mask(&self, size: usize) -> Vec<u8> {
        let mut mask = vec![0; size];
        let mut paced = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        let machine = paced.machine();
        for cpu in (0..self.cpus).filter(|&cpu| machine.is_online(cpu)) {
            mask[cpu as usize / 8] |= 1 << (cpu % 8);
        }
        mask
    }
}

/// Returns whether a process has CAP_SYS_ADMIN in its user namespace.
fn is_privileged(pid: i32) -> bool {
    const SYS_ADMIN: u32 = 21;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> SYS_ADMIN & 1 == 1)
}

/// Sets a thread's priority. Returns whether that was allowed.
fn prioritise(thread: i32, nice: i32) -> bool {
    // SAFETY: setpriority(2) takes numbers, no pointers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, thread as libc::id_t, nice) == 0 }
}

/// Finds CPUID and RDTSC in a program's text, but only as whole instructions, not as bytes inside
/// others.
fn cpuid_and_rdtsc(text: &[u8]) -> Vec<(u64, [u8; 2])> {
    use iced_x86::{Code, Decoder, DecoderOptions};
    // Compilers put no data among instructions. If something cannot be decoded, the decoder
    // recovers a few bytes later.
    let decoder = Decoder::with_ip(64, text, 0, DecoderOptions::NONE);
    let asks = decoder.into_iter().filter_map(|instruction| match instruction.code() {
        Code::Cpuid => Some((instruction.ip(), CPUID)),
        Code::Rdtsc => Some((instruction.ip(), RDTSC)),
        _ => None,
    });
    // A prefix would remain in front of the trap, but compilers emit none.
    asks.filter(|(at, bytes)| text.get(*at as usize..*at as usize + 2) == Some(bytes)).collect()
}

/// The lowest CPU in a mask.
fn first(mask: &[u8]) -> Option<u32> {
    mask.iter().position(|&byte| byte != 0).map(|at| at as u32 * 8 + mask[at].trailing_zeros())
}

/// Raises the limit of open files to the program's request, but not above the real machine's limit.
/// Never fails.
fn raise_files(pid: i32, address: u64, caller: i32) -> io::Result<()> {
    let mut wanted = [0; 16];
    memory(caller)?.read_exact_at(&mut wanted, address)?;
    let soft = u64::from_ne_bytes(wanted[..8].try_into().unwrap_or_default());
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills and reads one structure each, which live until the calls return.
    unsafe {
        if libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut limit) == 0 {
            limit.rlim_cur = soft.min(limit.rlim_max);
            libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_instructions_are_replaced() {
        // jne +15; xor eax, eax; cpuid; rdtsc; mov eax, 0xa20f; ret: other instructions contain the
        // bytes of RDTSC and CPUID too.
        let text = [0x75, 0x0f, 0x31, 0xc0, 0x0f, 0xa2, 0x0f, 0x31, 0xb8, 0x0f, 0xa2, 0x00, 0x00, 0xc3];
        assert_eq!(cpuid_and_rdtsc(&text), [(4, CPUID), (6, RDTSC)]);
    }
}
