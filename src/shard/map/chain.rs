//! The chain of SIGBUS handlers: what was installed before the guard, and how a fault is handed on to it.
//!
//! It decides nothing about the guard's own faults, and it never calls a handler that is waiting for its own return.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering};

/// A handler that was installed with SA_SIGINFO.
pub(super) type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// A signal in the hands of a handler.
pub(super) struct Signal {
    pub(super) number: c_int,
    pub(super) info: *mut libc::siginfo_t,
    pub(super) context: *mut c_void,
}

impl Signal {
    /// The address whose page could not be had, if that is what the signal says.
    ///
    /// # Safety
    /// The signal is being handled.
    pub(super) unsafe fn missing_page(&self) -> Option<usize> {
        // SAFETY: the caller's promise; a signal with one of these codes carries an address.
        unsafe {
            matches!(self.code(), libc::BUS_ADRERR | libc::BUS_OBJERR | libc::BUS_MCEERR_AR)
                .then(|| (*self.info).si_addr() as usize)
        }
    }

    /// Whether returning repeats the instruction that failed, and with it the signal; one that was sent is over.
    ///
    /// # Safety
    /// The signal is being handled.
    unsafe fn comes_again(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.missing_page().is_some() || self.code() == libc::BUS_ADRALN }
    }

    unsafe fn code(&self) -> c_int {
        // SAFETY: the caller's promise. A handler before us may have got no siginfo and pass none.
        if self.info.is_null() { libc::SI_USER } else { unsafe { (*self.info).si_code } }
    }
}

/// A signal's action in one word, so that it can be replaced atomically: the handler's address and two flags.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Action(u64);

impl Action {
    // User space has no addresses with these bits.
    const SIGINFO: u64 = 1 << 63;
    const RESET: u64 = 1 << 62;

    pub(super) fn of(action: &libc::sigaction) -> Self {
        let flag = |flag: c_int, bit: u64| if action.sa_flags & flag != 0 { bit } else { 0 };
        let flags = flag(libc::SA_SIGINFO, Self::SIGINFO) | flag(libc::SA_RESETHAND, Self::RESET);
        Self(action.sa_sigaction as u64 | flags)
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) fn to_bits(self) -> u64 {
        self.0
    }

    fn address(self) -> usize {
        (self.0 & !(Self::SIGINFO | Self::RESET)) as usize
    }

    fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }
}

/// Does with `signal` what `previous` would have done; `number` tells the chain's links apart.
///
/// # Safety
/// The signal is being handled, and `previous` is an action that the system had for it.
pub(super) unsafe fn pass_on(signal: &Signal, previous: Action, number: usize) {
    // SAFETY: the caller's promise.
    let comes_again = unsafe { signal.comes_again() };
    let link = match previous.address() {
        libc::SIG_IGN if !comes_again => return,
        // The system itself does not ignore a fault.
        libc::SIG_DFL | libc::SIG_IGN => None,
        _ if !comes_again && SENT.fetch_add(1, Ordering::SeqCst) >= SENT_MAX => None,
        _ => Link::enter(number),
    };
    let Some(link) = link else {
        restore_default();
        if !comes_again {
            // SAFETY: raising a signal in its own handler is allowed.
            unsafe { libc::raise(signal.number) };
        }
        return;
    };
    if previous.has(Action::RESET) {
        restore_default();
    }
    // SAFETY: the address is a handler that the system had, and the flag says which of the two signatures it has;
    // that it is still there is what every chain of handlers relies on.
    unsafe {
        if previous.has(Action::SIGINFO) {
            let handler = std::mem::transmute::<usize, Handler>(previous.address());
            handler(signal.number, signal.info, signal.context);
        } else {
            let handler = std::mem::transmute::<usize, extern "C" fn(c_int)>(previous.address());
            handler(signal.number);
        }
    }
    link.leave();
}

fn restore_default() {
    // SAFETY: a zeroed sigaction is the default action with an empty mask.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGBUS, &raw const default, std::ptr::null_mut());
    }
}

/// How many signals that were sent, not faulted, have been passed on: two handlers that answer a signal by sending
/// it to each other would do so for ever.
static SENT: AtomicU32 = AtomicU32::new(0);
const SENT_MAX: u32 = 64;

/// Which threads are inside a predecessor right now. A full table counts as a ring: the fault becomes fatal.
static LINKS: [Link; 32] = [const { Link { owner: AtomicI64::new(0), frame: AtomicUsize::new(0) } }; 32];

/// One thread that is inside the predecessor of one trampoline; entering it again from there would be a ring.
struct Link {
    /// Thread id and trampoline number; 0 where the link is free.
    owner: AtomicI64,
    /// An address in the stack frame that entered. A nested call has a lower one; a mark that was left behind by a
    /// predecessor that jumped out instead of returning has not.
    frame: AtomicUsize,
}

impl Link {
    #[inline(never)]
    fn enter(number: usize) -> Option<&'static Self> {
        // SAFETY: asking for the thread's id has no conditions.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) };
        let owner = (thread as i64) << 8 | number as i64;
        let here = 0_u8;
        let frame = std::hint::black_box(&raw const here) as usize;
        if let Some(link) = LINKS.iter().find(|link| link.owner.load(Ordering::SeqCst) == owner) {
            if frame < link.frame.load(Ordering::SeqCst) {
                return None;
            }
            link.frame.store(frame, Ordering::SeqCst);
            return Some(link);
        }
        let link = LINKS
            .iter()
            .find(|link| link.owner.compare_exchange(0, owner, Ordering::SeqCst, Ordering::SeqCst).is_ok())?;
        link.frame.store(frame, Ordering::SeqCst);
        Some(link)
    }

    fn leave(&self) {
        self.owner.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_keeps_address_and_flags() {
        // SAFETY: a zeroed sigaction is a valid value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        assert_eq!(Action::of(&action).address(), libc::SIG_DFL);
        action.sa_sigaction = 0x7fff_1234_5671;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        let packed = Action::of(&action);
        assert_eq!(packed.address(), action.sa_sigaction);
        assert!(packed.has(Action::SIGINFO) && !packed.has(Action::RESET));
    }

    #[test]
    fn a_link_is_entered_once_and_free_again_afterwards() {
        let link = Link::enter(7).unwrap();
        #[inline(never)]
        fn nested() -> bool {
            let pad = std::hint::black_box([0_u8; 256]);
            Link::enter(7).is_some() && pad[0] == 0
        }
        assert!(!nested(), "a nested entry is a ring");
        assert!(
            Link::enter(6).is_some_and(|other| {
                other.leave();
                true
            }),
            "another number is no ring"
        );
        link.leave();
        assert!(nested());
    }
}
