//! Writes that find no segment free because another worker has not passed: they change nothing and can be retried.

use std::sync::Arc;

use glasscache_store::{
    ArithOptions, ArithOutcome, CasUnique, Config, DeleteOptions, DeleteOutcome, Expiry,
    GetOptions, KeyHash, NoRoomYet, Seconds, SetMode, SetOptions, SetOutcome, Store, Worker,
};

const NOW: Seconds = Seconds(2);
const KEY: &[u8] = b"number";
const TOUCHED: Expiry = Expiry::At(Seconds(500));
/// Too long for a small item, so that it is uploaded in pieces.
const UPLOAD_BYTES: u32 = 4096;

/// A worker that cannot get a segment, because the other has not passed; the last item that it wrote holds 5.
struct StoreWithoutFreeSegment {
    store: Arc<Store>,
    reader: Worker,
    writer: Worker,
    hash: KeyHash,
}

/// What a reader sees of an item.
#[derive(Debug, PartialEq, Eq)]
struct SeenItem {
    value: Vec<u8>,
    unique: CasUnique,
    expiry: Expiry,
    was_fetched: bool,
}

impl StoreWithoutFreeSegment {
    fn new() -> StoreWithoutFreeSegment {
        let config = Config { memory_bytes: 2 << 20, workers: 2, ..Config::default() };
        let store = Store::new(config).unwrap();
        let (mut reader, mut writer) = (store.worker(), store.worker());
        reader.go_online();
        writer.go_online();
        let mut number = 0;
        let mut fill = |writer: &mut Worker| {
            for _ in 0..10_000 {
                number += 1;
                let key = format!("filler-{number}").into_bytes();
                let options = SetOptions::default();
                let tried = writer.try_set(&key, store.hash(&key), &[7; 1000], &options, NOW);
                writer.pass();
                if tried == Err(NoRoomYet) {
                    return;
                }
            }
            panic!("there was always room: {:?}", store.counters());
        };
        fill(&mut writer);
        reader.pass();
        let hash = store.hash(KEY);
        let stored = writer.try_set(KEY, hash, b"5", &SetOptions::default(), NOW);
        assert!(matches!(stored, Ok(SetOutcome::Stored(_))));
        fill(&mut writer);
        StoreWithoutFreeSegment { store, reader, writer, hash }
    }

    fn set(&self, mode: SetMode) -> Result<SetOutcome, NoRoomYet> {
        let options = SetOptions { mode, ..SetOptions::default() };
        self.writer.try_set(KEY, self.hash, b"0", &options, NOW)
    }

    fn arith(&self) -> Result<ArithOutcome, NoRoomYet> {
        let options = ArithOptions { delta: 1, ..ArithOptions::default() };
        self.writer.try_arith(KEY, self.hash, &options, NOW)
    }

    fn touch(&self) -> Result<bool, NoRoomYet> {
        let found = self.writer.try_get_with(KEY, self.hash, &touch_options(), NOW)?;
        Ok(found.is_some())
    }

    fn invalidate(&self) -> Result<DeleteOutcome, NoRoomYet> {
        self.writer.try_delete(KEY, self.hash, &invalidate_options(), NOW)
    }

    /// The item as a reader sees it.
    fn item(&self) -> Option<SeenItem> {
        let item = self.reader.peek(KEY, self.hash, NOW)?;
        Some(SeenItem {
            value: item.value()?.to_vec(),
            unique: item.unique(),
            expiry: item.expiry(),
            was_fetched: item.was_fetched(),
        })
    }
}

fn touch_options() -> GetOptions {
    GetOptions { touch: Some(TOUCHED), ..GetOptions::default() }
}

fn invalidate_options() -> DeleteOptions {
    DeleteOptions { invalidate: true, ..DeleteOptions::default() }
}

#[test]
fn a_write_without_a_segment_changes_nothing_until_the_reader_passes() {
    let mut blocked_store = StoreWithoutFreeSegment::new();
    let before = blocked_store.item();
    assert_eq!(before.as_ref().map(|item| &item.value[..]), Some(&b"5"[..]));
    let evictions_before = blocked_store.store.counters().evictions;
    for _ in 0..100 {
        for mode in [SetMode::Set, SetMode::Replace, SetMode::Append] {
            assert_eq!(blocked_store.set(mode), Err(NoRoomYet));
        }
        assert_eq!(blocked_store.arith(), Err(NoRoomYet));
        assert_eq!(blocked_store.touch(), Err(NoRoomYet));
        assert_eq!(blocked_store.invalidate(), Err(NoRoomYet));
        blocked_store.writer.pass();
    }
    assert_eq!(blocked_store.item(), before);
    let counters = blocked_store.store.counters();
    assert_eq!(counters.refused, 0);
    assert_eq!(counters.evictions, evictions_before, "waiting evicts");
    blocked_store.reader.pass();
    assert!(matches!(blocked_store.set(SetMode::Append), Ok(SetOutcome::Stored(_))));
    assert!(matches!(blocked_store.arith(), Ok(ArithOutcome::Number { value: 51, .. })));
    assert_eq!(blocked_store.touch(), Ok(true));
    assert_eq!(blocked_store.item().map(|item| item.expiry), Some(TOUCHED));
    assert_eq!(blocked_store.invalidate(), Ok(DeleteOutcome::Deleted));
    assert!(blocked_store.item().is_some(), "deleted, not marked");
}

#[test]
fn an_upload_without_a_segment_continues_when_the_reader_passes() {
    let mut blocked_store = StoreWithoutFreeSegment::new();
    let (key, options) = (b"upload", SetOptions::default());
    let hash = blocked_store.store.hash(key);
    let reserved = blocked_store.writer.reserve(key, hash, UPLOAD_BYTES, &options, NOW);
    let mut upload = reserved.unwrap();
    assert!(upload.space(&blocked_store.writer, NOW).is_empty());
    assert!(upload.awaits_segment() && !upload.is_blocked_by_uploads());
    assert_eq!(blocked_store.store.counters().upload_bytes, 0);
    blocked_store.reader.pass();
    while !upload.is_complete() {
        let space = upload.space(&blocked_store.writer, NOW);
        let space_bytes = space.len();
        assert!(space_bytes > 0, "no room");
        space.fill(9);
        upload.advance(space_bytes);
    }
    let stored = blocked_store.writer.try_commit(&mut upload, NOW);
    assert!(matches!(stored, Ok(SetOutcome::Stored(_))));
    // A second time there is nothing left to commit.
    let second_commit = blocked_store.writer.try_commit(&mut upload, NOW);
    assert_eq!(second_commit, Ok(SetOutcome::NotStored));
    drop(upload);
    let item = blocked_store.writer.get(key, hash, NOW).unwrap();
    let value: Vec<u8> = item.pieces().flatten().copied().collect();
    assert_eq!(value, [9; UPLOAD_BYTES as usize]);
}

#[test]
fn a_plain_set_that_cannot_wait_is_refused_and_removes_the_old_value() {
    let blocked_store = StoreWithoutFreeSegment::new();
    let options = SetOptions::default();
    let outcome = blocked_store.writer.set(KEY, blocked_store.hash, b"0", &options, NOW);
    assert_eq!(outcome, SetOutcome::NoMemory);
    assert_eq!(blocked_store.item(), None);
    assert_eq!(blocked_store.store.counters().refused, 1);
}

#[test]
fn a_number_that_cannot_wait_is_refused_and_keeps_the_old_value() {
    let blocked_store = StoreWithoutFreeSegment::new();
    let outcome =
        blocked_store.writer.arith(KEY, blocked_store.hash, &ArithOptions::default(), NOW);
    assert_eq!(outcome, ArithOutcome::NoMemory);
    assert!(blocked_store.item().is_some());
    assert_eq!(blocked_store.store.counters().refused, 1);
}

#[test]
fn an_item_that_cannot_wait_for_a_touch_or_mark_is_removed() {
    let blocked_store = StoreWithoutFreeSegment::new();
    let touched = blocked_store.writer.get_with(KEY, blocked_store.hash, &touch_options(), NOW);
    assert!(touched.is_none() && blocked_store.item().is_none());
    let blocked_store = StoreWithoutFreeSegment::new();
    let marked = blocked_store.writer.delete(KEY, blocked_store.hash, &invalidate_options(), NOW);
    assert!(marked == DeleteOutcome::Deleted && blocked_store.item().is_none());
}

#[test]
fn retry_waits_until_the_reader_passes_or_the_caller_gives_up() {
    let StoreWithoutFreeSegment { mut reader, mut writer, hash, .. } =
        StoreWithoutFreeSegment::new();
    let options = SetOptions::default();
    let write = |writer: &Worker| writer.try_set(KEY, hash, b"6", &options, NOW);
    let mut tries_max = 0;
    let given_up = writer.retry(write, |tries| {
        tries_max = tries;
        tries < 3
    });
    assert_eq!((given_up, tries_max), (Err(NoRoomYet), 3));
    let stored = writer.retry(write, |tries| {
        if tries == 5 {
            reader.pass();
        }
        tries < 6
    });
    assert!(matches!(stored, Ok(SetOutcome::Stored(_))));
}
