//! The instructions that the silicon answers: RDTSC, RDTSCP, RDMSR, WRMSR, CPUID and ports; and
//! messages to its PCI functions. Each function returns the address to continue at, or `None` to
//! leave the instruction to QEMU.

use std::sync::atomic::Ordering;

use super::{Handles, Plugin};
use crate::{layout, punit, settings::Time, vfio_user::Connection};

impl Plugin {
    /// Returns the address after an instruction. A block may have been translated at another
    /// address than the one where it runs (the same page, mapped twice). The page comes from the
    /// instruction pointer, which QEMU has set to this block or to a later instruction in it. The
    /// offset in the page comes from the translation.
    pub(super) fn after(&self, handles: &Handles, at: u64, length: u64) -> u64 {
        let ip = self.read(handles, handles.ip);
        ip.wrapping_add(at.wrapping_sub(ip) & 0xfff).wrapping_add(length)
    }

    pub(super) fn tsc(&self, cpu: usize) -> u64 {
        let mut state = self.state();
        let (now, _) = self.now(&mut state, cpu, u64::MAX);
        state.chip.tsc(now)
    }

    pub(super) fn rdtsc(&self, cpu: usize, at: u64, with_aux: bool) -> Option<u64> {
        let handles = self.handles(cpu)?;
        let tsc = self.tsc(cpu);
        if with_aux {
            self.write(handles, handles.cx, self.cpus[cpu].tsc_aux.load(Ordering::Relaxed));
        }
        self.write_pair(handles, tsc);
        Some(self.after(handles, at, if with_aux { 3 } else { 2 }))
    }

    pub(super) fn rdmsr(&self, cpu: usize, at: u64) -> Option<u64> {
        let handles = self.handles(cpu)?;
        let register = self.read(handles, handles.cx) as u32;
        if register == 0x10 {
            return self.rdtsc(cpu, at, false);
        }
        let value = {
            let mut state = self.state();
            let (_, unaccounted) = self.now(&mut state, cpu, 100_000);
            state.chip.read_msr(cpu, register, unaccounted)?
        };
        self.write_pair(handles, value);
        Some(self.after(handles, at, 2))
    }

    /// The silicon gets the value, and then QEMU runs the instruction, which does nothing for a
    /// register that QEMU does not know. Of the silicon's registers QEMU only knows
    /// IA32_MISC_ENABLE, and stores its value.
    ///
    /// The instruction must not be skipped. `qemu_plugin_set_pc` leaves a block in its middle
    /// without restoring `cc_op`, with which QEMU computes EFLAGS from the block's last arithmetic
    /// instruction. In Linux that is the shift of the value into EDX, so bits of the value,
    /// including the trap flag, ended up in EFLAGS. The other instructions are skipped: the next
    /// arithmetic instruction overwrites wrong flags, unless an interrupt comes first, which has
    /// not been observed.
    pub(super) fn wrmsr(&self, cpu: usize) {
        let Some(handles) = self.handles(cpu) else { return };
        let register = self.read(handles, handles.cx) as u32;
        let low = self.read(handles, handles.ax) & 0xffff_ffff;
        let value = low | self.read(handles, handles.dx) << 32;
        match register {
            // TSC_AUX, which RDTSCP returns. QEMU stores its own copy too.
            0xc000_0103 => self.cpus[cpu].tsc_aux.store(low as u32, Ordering::Relaxed),
            // The APIC as registers: this may be an interrupt for another CPU.
            0x800..=0x83f => self.interrupts_sent(cpu),
            _ => {}
        }
        let mut state = self.state();
        let (now, _) = self.now(&mut state, cpu, 0);
        state.chip.write_msr(cpu, register, value, now);
    }

    pub(super) fn cpuid(&self, cpu: usize, at: u64) -> Option<u64> {
        let handles = self.handles(cpu)?;
        let leaf = self.read(handles, handles.ax) as u32;
        let subleaf = self.read(handles, handles.cx) as u32;
        // QEMU 11 fails an assertion if the guest reads leaf 1Fh, or an unknown leaf (which it
        // replaces with its highest leaf), with a large subleaf.
        if (0x1f..0x8000_0000).contains(&leaf) && subleaf > 5 {
            self.write(handles, handles.cx, 5u32);
        }
        let [ax, bx, cx, dx] = self.state().chip.cpuid(cpu, leaf, subleaf)?;
        for (register, value) in [(handles.ax, ax), (handles.bx, bx), (handles.cx, cx), (handles.dx, dx)] {
            self.write(handles, register, value);
        }
        Some(self.after(handles, at, 2))
    }

    pub(super) fn port(&self, cpu: usize, at: u64, write: bool) -> Option<u64> {
        let handles = self.handles(cpu)?;
        let port = self.read(handles, handles.dx) as u16;
        if !(layout::PORTS..=layout::MARK).contains(&port) {
            return None;
        }
        let ax = self.read(handles, handles.ax);
        let read = {
            let mut state = self.state();
            let (now, _) = self.now(&mut state, cpu, 0);
            if write {
                state.chip.write_port(cpu, port, ax as u8, now).then_some(None)?
            } else {
                Some(state.chip.read_port(port)?)
            }
        };
        if let Some(value) = read {
            // IN to AL does not change the rest of the register.
            self.write(handles, handles.ax, ax & !0xff | u64::from(value));
        }
        Some(self.after(handles, at, 1))
    }

    /// A 16-bit write to a port. The write that switches the machine off closes the logs and saves
    /// the counts, because the emulator takes a while to stop. QEMU gets every write too.
    pub(super) fn out_word(&self, cpu: usize) -> Option<u64> {
        /// PM1a control of q35 (ICH9's power management at 600h, which SeaBIOS sets), and its sleep
        /// enable bit.
        const CONTROL: u64 = 0x604;
        const SLEEP_ENABLE: u64 = 1 << 13;
        let handles = self.handles(cpu)?;
        let (port, value) = (self.read(handles, handles.dx) & 0xffff, self.read(handles, handles.ax));
        if port == CONTROL && value & SLEEP_ENABLE != 0 {
            let state = &mut *self.state();
            let counts = self.counts(state);
            state.off.get_or_insert(counts);
            state.chip.end();
        }
        None
    }

    /// Passes a message from QEMU to a PCI function. The CPU that caused it waits for the answer,
    /// so no time passes in the closed loop. As with register writes, the silicon gets the CPU's
    /// executed time at the end of the slice.
    pub(super) fn pci(
        &self,
        connection: &mut Connection,
        bytes: &[u8],
        function: &mut punit::Function,
    ) -> Option<Vec<u8>> {
        let state = &mut *self.state();
        if self.settings.time == Time::Open {
            state.catch_up(self.start.elapsed().as_nanos() as u64);
        }
        state.chip.pci(connection, bytes, function)
    }
}
