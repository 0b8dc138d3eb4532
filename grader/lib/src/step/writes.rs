//! A stop at a write: the processor's debug registers, one address for each thread.
//!
//! A thread that has just written an element of the results is at work, wherever the system's scheduler has put it and
//! however long that took. No moment of the clock says that on a busy machine.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3, section 19.2 (debug registers).

use std::mem::offset_of;

use nix::libc;
use nix::sys::ptrace;
use nix::unistd::Pid;

/// The offset of the debug registers in the area that `PTRACE_POKEUSER` writes to.
const REGISTERS: usize = offset_of!(libc::user, u_debugreg);

/// Register 7: address 0 is in use, for writes, eight bytes long.
const ON: u64 = 1 | 0b01 << 16 | 0b10 << 18;

/// Has a thread that stands still stop after a write into the eight bytes at an address, or no longer.
pub(super) fn stop_at(thread: Pid, address: Option<u64>) -> Result<(), nix::Error> {
    let poke = |register: usize, value: u64| {
        let offset = (REGISTERS + register * size_of::<u64>()) as ptrace::AddressType;
        ptrace::write_user(thread, offset, value.cast_signed())
    };
    poke(7, 0)?; // an address that is in use cannot be changed
    let Some(address) = address else { return Ok(()) };
    poke(0, address)?;
    poke(7, ON)
}
