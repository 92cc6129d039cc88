//! The SIGBUS guard: a fault inside a watched map gets a page of zeros and a flag instead of ending the process.
//!
//! It handles no other fault: those go on to whoever handled SIGBUS before, as if the guard were not there.
//!
//! Everything that the handler touches is an atomic in a static of fixed size: it takes no lock, allocates nothing,
//! and calls only functions that may be called in a handler.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use super::chain::{self, Action, Handler, Signal};
use super::table::{self, Watch};

/// Watches the pages of a map of `len` bytes at `start`; `None` when the table is full or SIGBUS cannot be handled.
///
/// # Safety
/// The pages belong to a read-only map of the caller's, and stay mapped until the `Watch` is dropped.
pub(super) unsafe fn watch(start: usize, len: usize) -> Option<Watch> {
    if !renew() {
        return None;
    }
    // An empty file is mapped as one page that nobody looks at.
    let end = start.checked_add(len.max(1))?.checked_next_multiple_of(page_size())?;
    table::watch(start, end)
}

/// Puts the guard's handler in front again where another library has replaced it; `false` when that cannot be done.
pub(super) fn renew() -> bool {
    let current = current_action();
    if is_guard(current.sa_sigaction) {
        return true;
    }
    let Some(number) = trampoline_for(Action::of(&current)) else { return false };
    // SAFETY: a zeroed sigaction is a valid value: no flags, an empty mask, the default action.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = TRAMPOLINES[number] as *const () as usize;
    // SA_ONSTACK: a fault that is not ours may be an exhausted stack. SA_NODEFER: a handler further down the chain
    // may look at a watched page itself, which must not be fatal.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: as above.
    let mut replaced: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both point to valid structs, and the trampoline has the signature that SA_SIGINFO asks for.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, &raw mut replaced) } != 0 {
        return false;
    }
    // Someone may have come in since `current_action`; then it is that one that the faults of others belong to.
    if !is_guard(replaced.sa_sigaction) {
        PREVIOUS[number].store(Action::of(&replaced).to_bits(), Ordering::SeqCst);
    }
    true
}

/// Size of a page in bytes: a power of two.
pub(super) fn page_size() -> usize {
    rustix::param::page_size()
}

/// The handlers by number. The one place their addresses are taken from, so that they can be compared.
static TRAMPOLINES: [Handler; 8] = [
    on_sigbus::<0>,
    on_sigbus::<1>,
    on_sigbus::<2>,
    on_sigbus::<3>,
    on_sigbus::<4>,
    on_sigbus::<5>,
    on_sigbus::<6>,
    on_sigbus::<7>,
];

/// What handled SIGBUS before the trampoline of the same number: an [`Action`] as bits, `UNUSED` before its first use.
static PREVIOUS: [AtomicU64; 8] = [const { AtomicU64::new(UNUSED) }; 8];
const UNUSED: u64 = u64::MAX;

/// The handler as the system calls it; its number says where faults of others go.
///
/// Several of them exist so that a chain can pass through the guard more than once without becoming a ring: a
/// library that replaces the handler keeps the address of the one it replaced and may call it, so the one that is
/// then put in front must be another, with another predecessor.
unsafe extern "C" fn on_sigbus<const NUMBER: usize>(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: errno of this thread always has an address; a handler leaves it as it was.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let errno_before = unsafe { *errno };
    let signal = Signal { number, info, context };
    // SAFETY: the arguments are those of a signal, from the system or from a handler that passes on what it got.
    unsafe {
        if !give_zeros(&signal) {
            chain::pass_on(&signal, Action::from_bits(PREVIOUS[NUMBER].load(Ordering::SeqCst)), NUMBER);
        }
    }
    // SAFETY: as above.
    unsafe { *errno = errno_before };
}

/// Puts a page of zeros where the fault was, if it was in a watched range.
///
/// # Safety
/// `signal` is being handled.
unsafe fn give_zeros(signal: &Signal) -> bool {
    // SAFETY: the caller's promise.
    let Some(address) = (unsafe { signal.missing_page() }) else { return false };
    // Flagged before the zeros are there, so that no thread can read them and then find the flag clear.
    if !table::flag(address) {
        return false;
    }
    let page_size = page_size();
    let page = (address & !(page_size - 1)) as *mut c_void;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the page lies in a watched range (asked just now), so it is part of a read-only map of ours, which
    // stays alive while the faulting thread looks at it; replacing a page that cannot be read takes nothing away,
    // and the map's owner unmaps the whole range later whatever its pages are.
    unsafe { libc::mmap(page, page_size, libc::PROT_READ, flags, -1, 0) != libc::MAP_FAILED }
}

fn is_guard(address: usize) -> bool {
    TRAMPOLINES.iter().any(|trampoline| *trampoline as *const () as usize == address)
}

/// The number of a trampoline whose predecessor is `previous`: one used before or a fresh one; `None` after too many.
fn trampoline_for(previous: Action) -> Option<usize> {
    let bits = previous.to_bits();
    PREVIOUS.iter().position(|slot| {
        let claimed = slot.compare_exchange(UNUSED, bits, Ordering::SeqCst, Ordering::SeqCst);
        claimed.is_ok() || claimed == Err(bits)
    })
}

fn current_action() -> libc::sigaction {
    // SAFETY: a zeroed sigaction is a valid value, and asking for the current action changes nothing.
    unsafe {
        let mut current: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut current);
        current
    }
}
