//! The signal handler that copies the registers and the stack of the thread that it interrupts, and the timers that send the signal.
//!
//! The handler allocates nothing, takes no lock, and calls only what signal-safety(7) allows, and process_vm_readv(2) and gettid(2), which
//! are plain system calls. The stack is copied by process_vm_readv, which ends where the stack's memory ends and does not fault. The handler finds
//! its slots through a static, since signals are those of the process; so only one [`Handler`] is installed at a time. Slots are never freed: a
//! signal may be on its way when the handler is taken away.
//!
//! The kernel looks at timers of processor time only when a tick of its clock hits the thread, and sends one signal for all periods that have passed by
//! then. It tells how many others there were (`si_overrun`), so that a sample stands for all of them. Signals that no timer has sent are no samples.
//! Sources: sigaction(2), `SI_TIMER`; `include/uapi/asm-generic/siginfo.h` of the Linux kernel.
//!
//! This module holds `unsafe` code: system calls of signals and timers, and memory that the handler shares with its reader.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::super::events::Registers;

const FREE: u32 = 0;
const IN_USE: u32 = 1;
const FULL: u32 = 2;

/// One sample's place.
struct Slot {
    state: AtomicU32,
    content: UnsafeCell<Content>,
}

struct Content {
    thread: u32,
    time_ns: u64,
    periods: u32,
    registers: Registers,
    bytes: usize,
    stack: Box<[u8]>,
}

struct Slots {
    slots: Box<[Slot]>,
    lost: AtomicU64,
    /// Whether samples are taken.
    is_open: AtomicBool,
}

// SAFETY: a slot's content is touched only by whoever has changed its state from FREE (a handler) or FULL (the reader, of which there is one) to IN_USE.
unsafe impl Sync for Slots {}
// SAFETY: it owns everything that it holds.
unsafe impl Send for Slots {}

/// Where the handler finds its slots; null where none is installed.
static SLOTS: AtomicPtr<Slots> = AtomicPtr::new(null_mut());
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// A sample as the handler took it.
pub struct Taken<'a> {
    /// The thread.
    pub thread: u32,
    /// When, in nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// How many periods of the timer have passed since the sample before it.
    pub periods: u32,
    /// The registers.
    pub registers: Registers,
    /// The stack from `sp` on.
    pub stack: &'a [u8],
}

/// The installed handler.
pub struct Handler {
    slots: &'static Slots,
    before: libc::sigaction,
}

// SAFETY: it holds a reference to what is Sync, and a plain struct with a function's address.
unsafe impl Send for Handler {}

impl Handler {
    /// Installs the handler, with room for so many samples of so many bytes of stack.
    ///
    /// # Errors
    /// There is one already, in this process's use of this module or of its own, or the system refuses.
    pub fn install(slots: usize, stack_bytes: usize) -> io::Result<Self> {
        if IS_INSTALLED.swap(true, Ordering::SeqCst) {
            return Err(io::Error::other("this process is already sampled"));
        }
        let known = SLOTS.load(Ordering::SeqCst);
        // SAFETY: what was once put there is never freed.
        let slots = match unsafe { known.as_ref() } {
            Some(slots) => slots,
            None => {
                let slots: &'static Slots = Box::leak(Box::new(Slots::new(slots, stack_bytes)));
                SLOTS.store(std::ptr::from_ref(slots).cast_mut(), Ordering::SeqCst);
                slots
            }
        };
        slots.is_open.store(true, Ordering::SeqCst);
        match change_action() {
            Ok(before) => Ok(Self { slots, before }),
            Err(error) => {
                IS_INSTALLED.store(false, Ordering::SeqCst);
                Err(error)
            }
        }
    }

    /// Gives each sample that was taken since the last call.
    pub fn take(&mut self, mut each: impl FnMut(Taken<'_>)) {
        for slot in &self.slots.slots {
            let state = &slot.state;
            let is_full = state
                .compare_exchange(FULL, IN_USE, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
            if !is_full {
                continue;
            }
            {
                // SAFETY: the state is IN_USE by this thread's doing, so that nobody else touches the content.
                let content = unsafe { &*slot.content.get() };
                each(Taken {
                    thread: content.thread,
                    time_ns: content.time_ns,
                    periods: content.periods,
                    registers: content.registers,
                    stack: &content.stack[..content.bytes],
                });
            }
            state.store(FREE, Ordering::Release);
        }
    }

    /// How many samples found no room since the process began.
    pub fn lost(&self) -> u64 {
        self.slots.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        self.slots.is_open.store(false, Ordering::SeqCst);
        let is_default = self.before.sa_sigaction == libc::SIG_DFL;
        if !is_default {
            // SAFETY: it is the action that was in force before.
            unsafe { libc::sigaction(libc::SIGPROF, &self.before, null_mut()) };
        }
        // Otherwise the handler stays: a signal that is on its way would end the process by default.
        IS_INSTALLED.store(false, Ordering::SeqCst);
    }
}

impl Slots {
    fn new(slots: usize, stack_bytes: usize) -> Self {
        let slot = |_| Slot {
            state: AtomicU32::new(FREE),
            content: UnsafeCell::new(Content {
                thread: 0,
                time_ns: 0,
                periods: 0,
                registers: Registers::default(),
                bytes: 0,
                stack: vec![0; stack_bytes].into(),
            }),
        };
        Self {
            slots: (0..slots.max(1)).map(slot).collect(),
            lost: AtomicU64::new(0),
            is_open: AtomicBool::new(true),
        }
    }

    /// A slot to write to.
    fn claim(&self) -> Option<&Slot> {
        self.slots.iter().find(|slot| {
            slot.state
                .compare_exchange(FREE, IN_USE, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        })
    }
}

/// Makes [`on_signal`] the action of SIGPROF; the one from before.
fn change_action() -> io::Result<libc::sigaction> {
    // SAFETY: all zeros are a valid sigaction; the handler's type is the one that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        let mut before = MaybeUninit::zeroed();
        match libc::sigaction(libc::SIGPROF, &action, before.as_mut_ptr()) {
            0 => Ok(before.assume_init()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// What the kernel tells of a signal that a timer has sent: the beginning of `siginfo_t` on 64-bit systems.
#[repr(C)]
struct TimerSignal {
    number: c_int,
    errno: c_int,
    code: c_int,
    padding: c_int,
    timer: c_int,
    overruns: c_int,
}

impl TimerSignal {
    /// How many periods the signal stands for; none where no timer has sent it.
    fn periods(&self) -> Option<u32> {
        let overruns = u32::try_from(self.overruns).unwrap_or(0);
        (self.code == libc::SI_TIMER).then(|| overruns.saturating_add(1))
    }
}

extern "C" fn on_signal(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the slots are never freed. The kernel gives information of this layout and a context of this type to handlers with SA_SIGINFO; the
    // information is longer and as strictly aligned. Everything called is a system call, and errno is put back.
    unsafe {
        let Some(periods) = (*info.cast::<TimerSignal>()).periods() else {
            return;
        };
        let Some(slots) = SLOTS.load(Ordering::Acquire).as_ref() else {
            return;
        };
        if !slots.is_open.load(Ordering::Relaxed) {
            return;
        }
        let errno = libc::__errno_location();
        let before = *errno;
        match slots.claim() {
            None => {
                slots.lost.fetch_add(1, Ordering::Relaxed);
            }
            Some(slot) => {
                let content = &mut *slot.content.get();
                content.periods = periods;
                fill(content, &*context.cast::<libc::ucontext_t>());
                slot.state.store(FULL, Ordering::Release);
            }
        }
        *errno = before;
    }
}

/// Copies what a thread was doing.
fn fill(content: &mut Content, context: &libc::ucontext_t) {
    content.registers = registers(context);
    // SAFETY: the pieces of memory are valid for writing; those for reading are checked by the kernel, which reads what it can.
    unsafe {
        content.thread = libc::syscall(libc::SYS_gettid) as u32;
        let mut time: libc::timespec = zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time);
        content.time_ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        let to = libc::iovec {
            iov_base: content.stack.as_mut_ptr().cast(),
            iov_len: content.stack.len(),
        };
        // Page by page: what a call cannot read wholly it reads up to the end of an element.
        const PAGE: usize = 4096;
        const PIECES: usize = 17;
        let start = content.registers.sp as usize;
        let mut from: [libc::iovec; PIECES] = zeroed();
        let (mut at, mut rest, mut pieces) = (start, content.stack.len(), 0);
        while rest > 0 && pieces < PIECES {
            let bytes = rest.min(PAGE - at % PAGE);
            from[pieces] = libc::iovec {
                iov_base: at as *mut c_void,
                iov_len: bytes,
            };
            (at, rest, pieces) = (at + bytes, rest - bytes, pieces + 1);
        }
        let read = libc::process_vm_readv(
            libc::getpid(),
            &to,
            1,
            from.as_ptr(),
            pieces as libc::c_ulong,
            0,
        );
        content.bytes = usize::try_from(read).unwrap_or(0);
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let of = |register: c_int| context.uc_mcontext.gregs[register as usize] as u64;
    Registers {
        ip: of(libc::REG_RIP),
        sp: of(libc::REG_RSP),
        fp: of(libc::REG_RBP),
        lr: 0,
        general: [
            libc::REG_RAX,
            libc::REG_RDX,
            libc::REG_RCX,
            libc::REG_RBX,
            libc::REG_RSI,
            libc::REG_RDI,
            libc::REG_RBP,
            libc::REG_RSP,
            libc::REG_R8,
            libc::REG_R9,
            libc::REG_R10,
            libc::REG_R11,
            libc::REG_R12,
            libc::REG_R13,
            libc::REG_R14,
            libc::REG_R15,
        ]
        .map(of),
    }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    Registers {
        ip: machine.pc,
        sp: machine.sp,
        fp: machine.regs[29],
        lr: machine.regs[30],
        ..Registers::default()
    }
}

/// A timer that counts a thread's processor time; it ends when it is dropped.
pub struct ThreadTimer(libc::timer_t);

// SAFETY: a timer's id is a number that any thread may use.
unsafe impl Send for ThreadTimer {}

impl ThreadTimer {
    /// Starts a timer of a thread of this process, for an installed handler.
    ///
    /// # Errors
    /// The thread has ended, or the system refuses.
    pub fn start(_: &Handler, thread: i32, frequency_hz: u32) -> io::Result<Self> {
        /// The clock of scheduled time, of one thread.
        const SCHEDULED_OF_THREAD: i32 = 2 | 4;
        let clock = !thread << 3 | SCHEDULED_OF_THREAD;
        let period_ns = 1_000_000_000 / i64::from(frequency_hz.max(1));
        let period = libc::timespec {
            tv_sec: period_ns / 1_000_000_000,
            tv_nsec: period_ns % 1_000_000_000,
        };
        let times = libc::itimerspec {
            it_interval: period,
            it_value: period,
        };
        // SAFETY: all zeros are a valid sigevent; the pointers are to locals that live longer than the calls.
        unsafe {
            let mut event: libc::sigevent = zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGPROF;
            event.sigev_notify_thread_id = thread;
            let mut timer: libc::timer_t = null_mut();
            if libc::timer_create(clock, &mut event, &mut timer) != 0 {
                return Err(io::Error::last_os_error());
            }
            let started = Self(timer);
            match libc::timer_settime(timer, 0, &times, null_mut()) {
                0 => Ok(started),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }
}

impl Drop for ThreadTimer {
    fn drop(&mut self) {
        // SAFETY: the timer was made by timer_create and is deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(code: c_int, overruns: c_int) -> TimerSignal {
        TimerSignal {
            number: libc::SIGPROF,
            errno: 0,
            code,
            padding: 0,
            timer: 1,
            overruns,
        }
    }

    #[test]
    fn a_signal_stands_for_all_periods_that_have_passed() {
        for (code, overruns, periods) in [
            (libc::SI_TIMER, 0, Some(1)),
            (libc::SI_TIMER, 2, Some(3)),
            (libc::SI_TIMER, c_int::MAX, Some(1 << 31)),
            (libc::SI_TIMER, -1, Some(1)),
            (libc::SI_USER, 2, None),
            (libc::SI_TKILL, 2, None),
        ] {
            assert_eq!(
                signal(code, overruns).periods(),
                periods,
                "{code} {overruns}"
            );
        }
    }

    fn cpu_ns() -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    /// Lets a signal that is pending come, or no longer.
    fn change_mask(how: c_int) {
        // SAFETY: the set is filled before it is used.
        unsafe {
            let mut set: libc::sigset_t = zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGPROF);
            assert_eq!(libc::pthread_sigmask(how, &set, null_mut()), 0);
        }
    }

    #[test]
    fn periods_without_a_signal_of_their_own_count_in_the_next() {
        const HZ: u32 = 97;
        let mut handler = Handler::install(64, 4096).unwrap();
        // Nothing of this thread is sampled while the signal has to wait; by the kernel's clock that is as if no tick had hit it.
        change_mask(libc::SIG_BLOCK);
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let timer = ThreadTimer::start(&handler, thread, HZ).unwrap();
        let begin = cpu_ns();
        while cpu_ns() - begin < 200_000_000 {}
        change_mask(libc::SIG_UNBLOCK);
        let spent = cpu_ns() - begin;
        drop(timer);
        let (mut samples, mut periods) = (0, 0);
        handler.take(|taken| {
            samples += 1;
            periods += u64::from(taken.periods);
            assert_eq!(taken.thread, thread as u32);
        });
        let expected = spent * u64::from(HZ) / 1_000_000_000;
        assert!((1..3).contains(&samples), "{samples}");
        assert!(
            periods.abs_diff(expected) <= 1,
            "{periods} of {expected} periods"
        );
    }
}
