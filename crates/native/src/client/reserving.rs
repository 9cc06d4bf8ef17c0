//! Reservations: `get_or_set` reserves a key while one client computes its value.

use glasscache_client::StoreMode;
use glasscache_client::request::Item;
use glasscache_client::reservation::{
    FindReservation, Reservation, TOKEN_BYTES, reservation_flags_and_body,
};
use glasscache_client::write_outcome::WriteOutcome;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::Client;
use crate::ttl::{Ttl, exptime};

/// Token, CAS unique and seconds left of a reservation.
pub(crate) type ReservationTuple<'py> = (Bound<'py, PyBytes>, u64, Option<i64>);

/// A reservation as a Python tuple.
pub(crate) fn reservation_tuple(py: Python<'_>, reservation: Reservation) -> ReservationTuple<'_> {
    (PyBytes::new(py, &reservation.token), reservation.cas, reservation.ttl_s)
}

/// The mode of a store that reserves a key: `add`, or `cas` on the unique of the reservation that it replaces.
pub(crate) fn store_mode(instead_of: Option<u64>) -> StoreMode {
    instead_of.map_or(StoreMode::Add, StoreMode::Cas)
}

#[pymethods]
impl Client {
    /// Reserve key for a value that is being made; whether it was reserved, None if it cannot be.
    ///
    /// To clients of this package a reserved key is a miss; `cas` with the unique of `reservation` replaces it.
    #[pyo3(signature = (key, token, ttl, instead_of=None, *, deadline=None))]
    #[pyo3(name = "_reserve")]
    fn reserve(
        &self,
        key: &Bound<'_, PyAny>,
        token: [u8; TOKEN_BYTES],
        ttl: Ttl,
        instead_of: Option<u64>,
        deadline: Option<f64>,
    ) -> PyResult<Option<bool>> {
        let exptime = exptime(Some(ttl))?;
        let Some((flags, body)) = reservation_flags_and_body(&self.codec().inner, &token) else {
            return Ok(None);
        };
        self.with_key(key, deadline, None, |core, key, budget| {
            let body = &body;
            let item = Item { key, flags, body };
            let outcome = core.store(store_mode(instead_of), item, exptime, false, budget)?;
            Ok(Some(outcome == WriteOutcome::Done))
        })
    }

    /// Return (token, CAS unique, seconds left) of the reservation under key, or None if there is none.
    #[pyo3(signature = (key, *, deadline=None))]
    #[pyo3(name = "_reservation")]
    fn reservation<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Option<ReservationTuple<'py>>> {
        let reservation = self.with_key(key, deadline, None, |core, key, budget| {
            let command_set = core.server_of(key.bytes)?.command_set();
            core.run(&FindReservation { key, command_set }, budget)
        })?;
        Ok(reservation.map(|reservation| reservation_tuple(py, reservation)))
    }
}
