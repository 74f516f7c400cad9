//! Reading on in a thread of its own, while the client's thread works with the records that it got.
//!
//! The queues are in one hand at a time: they go to the thread with what it is asked, and come back with what it read. So
//! nothing is shared. Whoever needs them tells the thread to stop, which takes it `WAIT_MS` at most, besides what it takes
//! out of the queue at once.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use super::drain::AHEAD_BYTES_MAX;
use super::queues::Queues;
use crate::librdkafka::Handle;

/// A smaller poll is over sooner than a thread has started.
const RECORDS_MIN: usize = 64;

/// How long the thread waits for more before it looks whether it is to stop.
const WAIT_MS: c_int = 1;
/// The thread stops after this number of waits in a row without a record: the log is read to its end, or the broker is slow.
const WAITS_MAX: usize = 20;

struct Asked {
    queues: Queues,
    handle: Handle,
    max_records: usize,
}

impl Asked {
    /// Reads until there is enough, nothing comes any more, or `stop` is set. If there is enough, nothing will be added
    /// before it is passed on, so fields are read, too.
    ///
    /// # Safety
    /// The handle is open.
    unsafe fn read(&mut self, stop: &AtomicBool) {
        let mut waits = 0;
        while waits < WAITS_MAX && !stop.load(Ordering::Relaxed) {
            if self.queues.ready.is_enough(self.max_records) {
                self.queues.project();
                break;
            }
            let before = self.queues.ready.len();
            // SAFETY: by the contract.
            unsafe { self.queues.fill(&self.handle, self.max_records, AHEAD_BYTES_MAX, WAIT_MS) };
            waits = if self.queues.ready.len() == before { waits + 1 } else { 0 };
        }
    }
}

struct Thread {
    /// Set while the queues are waited for.
    stop: Arc<AtomicBool>,
    asked: Sender<Asked>,
    done: Receiver<Queues>,
    joined: JoinHandle<()>,
}

impl Thread {
    /// `None`: the system gave no thread.
    fn start() -> Option<Self> {
        let (asked, work) = channel::<Asked>();
        let (finished, done) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let run = move || {
            block_signals();
            while let Ok(mut asked) = work.recv() {
                // SAFETY: who asked waits for the answer before the handle is closed.
                unsafe { asked.read(&told) };
                if finished.send(asked.queues).is_err() {
                    break;
                }
            }
        };
        let joined = Builder::new().name("penstock-read".into()).spawn(run).ok()?;
        Some(Thread { stop, asked, done, joined })
    }
}

/// Leaves signals to the threads of Python, whose calls they are to interrupt.
fn block_signals() {
    // SAFETY: the set is filled before it is used; the call changes this thread only.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

/// The queues, which a thread may have for a while.
pub struct AheadQueues {
    /// `None` while the thread has them.
    here: Option<Queues>,
    thread: Option<Thread>,
}

impl AheadQueues {
    pub fn new(queues: Queues) -> Self {
        Self { here: Some(queues), thread: None }
    }

    /// The queues, after the thread has finished. `None`: it has ended with them, by a panic.
    pub fn back(&mut self) -> Option<&mut Queues> {
        if self.here.is_none() {
            self.here = self.thread.as_ref().and_then(|thread| {
                thread.stop.store(true, Ordering::Relaxed);
                thread.done.recv().ok()
            });
        }
        self.here.as_mut()
    }

    /// Has the thread read as many records as the last call got: all that it asked for, so most likely there are more.
    ///
    /// # Safety
    /// The handle is open, and stays so until `back` or `close` is called.
    pub unsafe fn read_on(&mut self, handle: &Handle, max_records: usize) {
        if max_records < RECORDS_MIN {
            return;
        }
        if self.thread.is_none() {
            self.thread = Thread::start();
        }
        if let (Some(thread), Some(queues)) = (&self.thread, self.here.take()) {
            thread.stop.store(false, Ordering::Relaxed);
            if let Err(refused) = thread.asked.send(Asked { queues, handle: *handle, max_records }) {
                self.here = Some(refused.0.queues);
            }
        }
    }

    /// The queues for good. The thread has ended.
    pub fn close(mut self) -> Option<Queues> {
        self.back();
        if let Some(Thread { asked, joined, .. }) = self.thread {
            drop(asked);
            let _ = joined.join();
        }
        self.here
    }
}
