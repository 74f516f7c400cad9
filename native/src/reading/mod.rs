//! Reading: the client's fetched records into one buffer per column, without the GIL and without an object per record.
//!
//! The partitions that are read are forwarded to a queue of the reader's own. Group events, errors and log lines stay on
//! the client's queue and are served by the client, for its callbacks need a state that only its own calls set up. The
//! own queue is drained with `rd_kafka_consume_callback`, which hands over whatever lies there, errors included, to the
//! callback that is given and to no other. It is called for one partition and serves the queue to which that is forwarded.
//! `rd_kafka_consume_callback_queue` would do the same, but take the whole queue out at once: while it lies aside, the
//! client sees an empty queue and fetches more than its limits allow. The other one takes as many as the client's setting
//! `consume.callback.max.messages` says.
//!
//! Starting to read a partition again takes its forwarding away, later and in another thread. Records then wait on the
//! partition's own queue, until it is forwarded again; nothing is lost and nothing overtakes. So every `fill` forwards
//! those partitions again of which nothing has come since they were started.
//!
//! A call that got all that it asked for is followed by reading ahead, in a thread: most likely there is more. What is
//! ready of a partition is dropped before that is sought, paused, stopped or started again: it is from before.

mod ahead;
mod chunk;
mod drain;
mod queues;

pub use ahead::AheadQueues;
pub use chunk::{Chunk, Strings};
pub use queues::{Queues, Unfollowed};
