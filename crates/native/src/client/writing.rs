//! Writes about one key: values under their conditions, removals, expiry, arithmetic.

use glasscache_client::Arithmetic;
use glasscache_client::StoreMode;
use glasscache_client::costs::TimeSpent;
use glasscache_client::engine::operation::{Touch, Touched};
use glasscache_client::engine::{Counter, Extending};
use glasscache_client::request::Item;
use glasscache_client::write_outcome::WriteOutcome;
use pyo3::prelude::*;

use crate::ttl::{Ttl, exptime};
use crate::{split, value as conversion};

use super::foreign_keywords::{ForeignKeyword, SurplusArgument, method_refusing_foreign_keywords};
use super::{Client, appended_bytes, parse_amount, parse_optional_amount};

method_refusing_foreign_keywords! {
    positional(key, value, ttl=None) keyword_only(noreply=false, split=false, deadline=None);
    /// Store value under key for ttl seconds (0: no expiry); True when the server has it.
    ///
    /// With noreply the call does not wait. A single write is sent at once; those that follow
    /// it closely (0.1 ms) are gathered, and leave together with the next call to that server, whichever
    /// thread makes it, or when there are 32 KiB of them, or after a millisecond, or when the client is
    /// closed or the program ends. So any later call of this client finds them sent before it. A failure
    /// is counted by `stats()` and not raised, unless the server is known to be down; a write that was
    /// lost with its connection leaves no older value: the next call removes the key. Values of
    /// 64 KiB and more are always acknowledged, so that one that is too large is never dropped silently.
    ///
    /// With split a value above 512 KiB is stored in pieces of that length under keys of their own, the last
    /// write under `key` being the one that makes it visible. A read returns the whole value of one write, or a
    /// miss; each 64 pieces take one request. Such a call always waits. Only the client's own dialect has it.
    ///
    /// Raises:
    ///     ValueTooLarge: the server does not take a value of this size; an older value is removed.
    ///     UnwritableValue: the codec has no form for this type.
    ///
    /// >>> client.set("greeting", "hello", ttl=60)
    /// True
    #[pyo3(text_signature = "($self, key, value, ttl=None, *, noreply=False, split=False, deadline=None)")]
    fn set<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        ttl: Option<Bound<'py, PyAny>>,
    ) keywords(
        noreply: bool,
        split: bool,
        deadline: Option<f64>,
    ) -> PyResult<bool> {
        if split {
            return split::set(slf.as_any(), key, value, ttl, deadline);
        }
        let ttl = ttl.map(|ttl| ttl.extract()).transpose()?;
        let outcome =
            slf.get().write(slf.py(), StoreMode::Set, key, value, ttl, noreply, deadline)?;
        Ok(outcome == WriteOutcome::Done)
    }
}

method_refusing_foreign_keywords! {
    positional(key, value, ttl=None) keyword_only(noreply=false, deadline=None);
    /// Store value only if there is none under key; whether it was stored.
    #[pyo3(text_signature = "($self, key, value, ttl=None, *, noreply=False, deadline=None)")]
    fn add(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<Ttl>,
    ) keywords(
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<bool> {
        Ok(self.write(py, StoreMode::Add, key, value, ttl, noreply, deadline)?
            == WriteOutcome::Done)
    }
}

method_refusing_foreign_keywords! {
    positional(key, value, ttl=None) keyword_only(noreply=false, deadline=None);
    /// Store value only if there is one under key; whether it was stored.
    #[pyo3(text_signature = "($self, key, value, ttl=None, *, noreply=False, deadline=None)")]
    fn replace(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<Ttl>,
    ) keywords(
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<bool> {
        Ok(self.write(py, StoreMode::Replace, key, value, ttl, noreply, deadline)?
            == WriteOutcome::Done)
    }
}

#[pymethods]
impl Client {
    /// Append str or bytes to the value under key; False if there is none.
    #[pyo3(signature = (key, value, *, noreply=false, deadline=None))]
    fn append(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<bool> {
        self.append_or_prepend(StoreMode::Append, key, value, noreply, deadline)
    }

    /// Prepend str or bytes to the value under key; False if there is none.
    #[pyo3(signature = (key, value, *, noreply=false, deadline=None))]
    fn prepend(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<bool> {
        self.append_or_prepend(StoreMode::Prepend, key, value, noreply, deadline)
    }
}

method_refusing_foreign_keywords! {
    positional(key, value, cas, ttl=None) keyword_only(noreply=false, deadline=None);
    /// Store value if the CAS unique of `gets` still holds: True; False: it changed; None: gone.
    #[pyo3(text_signature = "($self, key, value, cas, ttl=None, *, noreply=False, deadline=None)")]
    fn cas(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        cas: u64,
        ttl: Option<Ttl>,
    ) keywords(
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<Option<bool>> {
        let mode = StoreMode::Cas(cas);
        Ok(match self.write(py, mode, key, value, ttl, noreply, deadline)? {
            WriteOutcome::Done => Some(true),
            WriteOutcome::NotFound => None,
            WriteOutcome::Exists | WriteOutcome::NotStored => Some(false),
        })
    }
}

#[pymethods]
impl Client {
    /// Remove key; whether it was there.
    #[pyo3(signature = (key, *, noreply=false, deadline=None))]
    fn delete(
        &self,
        key: &Bound<'_, PyAny>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<bool> {
        self.remove(key, noreply, deadline)
    }
}

method_refusing_foreign_keywords! {
    positional(key, ttl) keyword_only(noreply=false, deadline=None);
    /// Give key a new ttl in seconds; whether it was there.
    ///
    /// A value in pieces is renewed with its pieces, unless the call is `noreply`, or the server knows no meta commands:
    /// then use `gat`.
    #[pyo3(text_signature = "($self, key, ttl, *, noreply=False, deadline=None)")]
    fn touch(
        slf: &Bound<'_, Self>,
        key: &Bound<'_, PyAny>,
        ttl: &Bound<'_, PyAny>,
    ) keywords(
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<bool> {
        let exptime = exptime(Some(ttl.extract()?))?;
        let touched =
            slf.get().with_key(key, deadline, Touched::Missing, |core, key, budget| {
                core.run(&Touch { key, exptime, noreply }, budget)
            })?;
        match touched {
            Touched::Manifest => split::touch(slf.as_any(), key, ttl, deadline),
            touched => Ok(touched == Touched::Done),
        }
    }
}

method_refusing_foreign_keywords! {
    positional(key, delta=1) keyword_only(initial=None, ttl=None, noreply=false, deadline=None);
    /// Add delta to the number under key and return the sum, or None if there is no such key.
    ///
    /// With initial a missing key is made with that number and ttl, and initial is returned; one that is
    /// made with noreply is bytes to `get`. Numbers are of 64 bits without a sign, and a sum beyond them
    /// begins again at 0.
    ///
    /// Raises:
    ///     BadSetting: delta or initial is below 0 or above 2**64 - 1.
    ///
    /// >>> client.incr("visits", initial=1, ttl=3600)
    /// 1
    /// >>> client.incr("visits", 10)
    /// 11
    #[pyo3(text_signature = "($self, key, delta=1, *, initial=None, ttl=None, noreply=False, deadline=None)")]
    fn incr(
        &self,
        key: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = parse_amount)] delta: u64,
    ) keywords(
        #[pyo3(from_py_with = parse_optional_amount)] initial: Option<u64>,
        ttl: Option<Ttl>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<Option<u64>> {
        self.arithmetic(key, (delta, false), initial, ttl, noreply, deadline)
    }
}

method_refusing_foreign_keywords! {
    positional(key, delta=1) keyword_only(initial=None, ttl=None, noreply=false, deadline=None);
    /// Subtract delta from the number under key, not below 0, and return what is left.
    #[pyo3(text_signature = "($self, key, delta=1, *, initial=None, ttl=None, noreply=False, deadline=None)")]
    fn decr(
        &self,
        key: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = parse_amount)] delta: u64,
    ) keywords(
        #[pyo3(from_py_with = parse_optional_amount)] initial: Option<u64>,
        ttl: Option<Ttl>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<Option<u64>> {
        self.arithmetic(key, (delta, true), initial, ttl, noreply, deadline)
    }
}

impl Client {
    pub(crate) fn remove(
        &self,
        key: &Bound<'_, PyAny>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<bool> {
        self.change_key(key, deadline, false, |core, key, budget| core.delete(key, noreply, budget))
    }

    #[expect(clippy::too_many_arguments, reason = "the arguments of one write")]
    pub(crate) fn write(
        &self,
        py: Python<'_>,
        mode: StoreMode,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<Ttl>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<WriteOutcome> {
        let call_times = self.call_times(deadline)?;
        let exptime = exptime(ttl)?;
        let mut scratch = Vec::new();
        let key = self.wire_key(key, &mut scratch)?;
        conversion::encode_value(self.codec(), value, |flags, body, costs| {
            let mut spent = TimeSpent::default();
            conversion::add_costs(&mut spent, costs);
            let item = Item { key, flags, body };
            let outcome = self.run_detached(py, call_times, spent, |core, budget| {
                core.store(mode, item, exptime, noreply, budget)
            });
            if mode == StoreMode::Add {
                return self.or_counted_miss(py, outcome, WriteOutcome::NotStored);
            }
            self.or_counted_miss_of_change(py, outcome, WriteOutcome::NotStored, key)
        })
    }

    fn append_or_prepend(
        &self,
        mode: StoreMode,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<bool> {
        let (codec, bytes) = (self.codec().inner, appended_bytes(value)?);
        let outcome =
            self.change_key(key, deadline, WriteOutcome::NotStored, |core, key, budget| {
                core.run_steps(Extending::new(codec, mode, key, bytes, noreply), budget)
            })?;
        Ok(outcome == WriteOutcome::Done)
    }

    fn arithmetic(
        &self,
        key: &Bound<'_, PyAny>,
        (delta, is_decrement): (u64, bool),
        initial: Option<u64>,
        ttl: Option<Ttl>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<Option<u64>> {
        let exptime = exptime(ttl)?;
        self.change_key(key, deadline, None, |core, key, budget| {
            if let Some(initial) = initial.filter(|_| !noreply) {
                let initial_number = conversion::encode_initial(self.codec(), initial, exptime);
                let counter = Counter::new(key, delta, is_decrement, initial_number);
                return core.run_steps(counter, budget);
            }
            let arithmetic = Arithmetic {
                delta,
                is_decrement,
                initial: initial.map(|number| (number, exptime)),
            };
            core.arithmetic(key, arithmetic, noreply, budget)
        })
    }
}
