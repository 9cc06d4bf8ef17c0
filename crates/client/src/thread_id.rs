//! Numbers for threads, to give each thread the connection that it used last.

/// A number that threads do not share while they live.
pub(crate) fn this_thread_id() -> usize {
    thread_local!(static MARKER: u8 = const { 0 });
    MARKER.with(|marker| std::ptr::from_ref(marker).addr())
}
