//! The hook after each call: an observer receives what both clients did, with keys, hits, bytes and durations.

use std::sync::{Arc, Mutex};

use glasscache_client::costs::{CallClass, CostPart, OperationKind};
use glasscache_client::observe::{Observer, RequestSummary};
use glasscache_client::{Options, StoreMode};

use crate::either_client::{item, long_timeout, with_both};
use crate::live_server::Server;

/// One call as it was observed: key, class, bytes of its reply, whether a read was a hit.
type ObservedCall = (Option<String>, CallClass, usize, Option<bool>);

#[derive(Debug, Default)]
struct Recorder {
    observed_calls: Mutex<Vec<ObservedCall>>,
}

impl Observer for Recorder {
    fn observe(&self, call: &RequestSummary<'_>) {
        assert!(call.spent.part_ns(CostPart::Wire) > 0, "{call:?}");
        let key = call.key.map(|key| String::from_utf8(key.bytes.to_vec()));
        let key = key.transpose().unwrap();
        let observed_call = (key, call.class, call.found_bytes, call.is_hit());
        self.observed_calls.lock().unwrap().push(observed_call);
    }
}

#[test]
fn an_observer_receives_each_call_with_its_key_bytes_and_hit() {
    let server = Server::start();
    for costs in [true, false] {
        let recorder = Arc::new(Recorder::default());
        let options = Options {
            namespace: b"n:".to_vec(),
            costs,
            observer: Some(recorder.clone()),
            ..long_timeout()
        };
        with_both(&server.address, &options, |either_client| {
            either_client.delete("n:k").unwrap();
            recorder.observed_calls.lock().unwrap().clear();
            either_client.get("n:k").unwrap();
            either_client.store(StoreMode::Set, "n:k", b"value").unwrap();
            either_client.get("n:k").unwrap();
            either_client.delete("n:k").unwrap();
            either_client.store_many(&[item("n:a", b"12"), item("n:b", b"345")]).unwrap();
            let (values, _) = either_client.get_many(&["a", "b"]).unwrap();
            assert_eq!(values.len(), 2);
            let expected_key = || Some("n:k".to_owned());
            let read = CallClass::Single(OperationKind::Read, 0);
            let write = CallClass::Single(OperationKind::Write, 5);
            let other = CallClass::Single(OperationKind::Other, 0);
            let expected = [
                (expected_key(), read, 0, Some(false)),
                (expected_key(), write, 0, None),
                (expected_key(), read, 5, Some(true)),
                (expected_key(), other, 0, None),
                (None, CallClass::Bulk(2, 0), 5, None),
                (None, CallClass::Bulk(2, 0), 5, None),
            ];
            assert_eq!(*recorder.observed_calls.lock().unwrap(), expected);
        });
    }
}
