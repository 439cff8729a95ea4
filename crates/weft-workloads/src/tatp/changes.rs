//! The four transactions of TATP that write.
//!
//! Three of them may not succeed, because a row is missing or already exists. Then they have changed nothing: their
//! earlier changes are rolled back.

use weft::protocol::Protocol;
use weft::{Error, Failure, Transaction};
use weft_procedures::{Execute, procedure};

use super::client::Client;
use super::load::{draw_location, draw_number};
use super::schema::{CallForwarding, Number, Subscriber, number_of};
use super::{Tables, Tatp, failure_of};

/// The input of a transaction that writes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// `UPDATE_SUBSCRIBER_DATA`: changes `BIT_1` of a subscriber, and `DATA_A` of a special facility.
    SubscriberData { s_id: u32, bit_1: bool, sf_type: u8, data_a: u8 },
    /// `UPDATE_LOCATION`: changes `VLR_LOCATION` of the subscriber with a number.
    Location { sub_nbr: Number, vlr_location: u32 },
    /// `INSERT_CALL_FORWARDING`: inserts a call forwarding of the subscriber with a number.
    Insert { sub_nbr: Number, sf_type: u8, start_time: u8, end_time: u8, numberx: Number },
    /// `DELETE_CALL_FORWARDING`: deletes a call forwarding of the subscriber with a number.
    Delete { sub_nbr: Number, sf_type: u8, start_time: u8 },
}

impl Change {
    pub(super) fn draw_subscriber_data(client: &mut Client) -> Change {
        Change::SubscriberData {
            s_id: client.draw_subscriber(),
            bit_1: client.random.within_u8(0, 1) == 1,
            sf_type: client.draw_type(),
            data_a: client.random.within_u8(0, u8::MAX),
        }
    }

    pub(super) fn draw_location(client: &mut Client) -> Change {
        Change::Location {
            sub_nbr: number_of(client.draw_subscriber()),
            vlr_location: draw_location(&mut client.random),
        }
    }

    pub(super) fn draw_insert(client: &mut Client) -> Change {
        Change::Insert {
            sub_nbr: number_of(client.draw_subscriber()),
            sf_type: client.draw_type(),
            start_time: client.draw_start_time(),
            end_time: client.draw_end_time(),
            numberx: draw_number(&mut client.random),
        }
    }

    pub(super) fn draw_delete(client: &mut Client) -> Change {
        Change::Delete {
            sub_nbr: number_of(client.draw_subscriber()),
            sf_type: client.draw_type(),
            start_time: client.draw_start_time(),
        }
    }
}

/// The reason why a change was not made.
#[derive(Debug)]
pub(super) enum NotMade {
    /// A row is missing, or already exists.
    Unsuccessful,
    /// The engine's error.
    Engine(Error),
}

impl From<Error> for NotMade {
    fn from(error: Error) -> Self {
        NotMade::Engine(error)
    }
}

/// Makes a change. Returns whether it succeeded.
#[inline]
pub(super) fn execute<P: Protocol>(
    tatp: &Tatp<P>,
    client: &mut Client,
    change: &Change,
) -> Result<bool, Failure> {
    match make(tatp, change) {
        Ok(()) => {
            match change {
                Change::Insert { .. } => client.note_inserted(),
                Change::Delete { .. } => client.note_deleted(),
                Change::SubscriberData { .. } | Change::Location { .. } => {}
            }
            Ok(true)
        }
        Err(NotMade::Unsuccessful) => Ok(false),
        Err(NotMade::Engine(error)) => Err(failure_of(error)),
    }
}

/// Executes the change's procedure.
#[inline]
pub(super) fn make<P: Protocol>(tatp: &Tatp<P>, change: &Change) -> Result<(), NotMade> {
    let Tatp { database, tables, .. } = tatp;
    match *change {
        Change::SubscriberData { s_id, bit_1, sf_type, data_a } => {
            database.execute(&mut UpdateSubscriberData::new(tables, s_id, bit_1, sf_type, data_a))
        }
        Change::Location { sub_nbr, vlr_location } => {
            database.execute(&mut UpdateLocation::new(tables, sub_nbr, vlr_location))
        }
        Change::Insert { sub_nbr, sf_type, start_time, end_time, numberx } => database.execute(
            &mut InsertCallForwarding::new(tables, sub_nbr, sf_type, start_time, end_time, numberx),
        ),
        Change::Delete { sub_nbr, sf_type, start_time } => {
            database.execute(&mut DeleteCallForwarding::new(tables, sub_nbr, sf_type, start_time))
        }
    }
}

#[procedure(UpdateSubscriberData)]
#[inline]
pub(super) fn update_subscriber_data<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    s_id: u32,
    bit_1: bool,
    sf_type: u8,
    data_a: u8,
) -> Result<(), NotMade> {
    tx.update(&tables.subscriber, &s_id, |row| row.bit[0] = bit_1)?
        .expect("subscribers are never removed");
    tx.update(&tables.special_facility, &(s_id, sf_type), |row| row.data_a = data_a)?
        .ok_or(NotMade::Unsuccessful)
}

#[procedure(UpdateLocation)]
#[inline]
pub(super) fn update_location<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    sub_nbr: Number,
    vlr_location: u32,
) -> Result<(), NotMade> {
    let s_id = id_of(tx.get_by(&tables.subscriber, Subscriber::SUB_NBR, &sub_nbr)?);
    tx.update(&tables.subscriber, &s_id, |row| row.vlr_location = vlr_location)?
        .expect("subscribers are never removed");
    Ok(())
}

#[procedure(InsertCallForwarding)]
#[inline]
pub(super) fn insert_call_forwarding<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    sub_nbr: Number,
    sf_type: u8,
    start_time: u8,
    end_time: u8,
    numberx: Number,
) -> Result<(), NotMade> {
    let s_id = id_of(tx.get_by(&tables.subscriber, Subscriber::SUB_NBR, &sub_nbr)?);
    // The specification reads all facilities of the subscriber, and then refers to a facility of any type. If it
    // does not exist, the foreign key is violated.
    let mut is_there = false;
    for facility in tx.prefix(&tables.special_facility, &s_id) {
        is_there |= facility?.sf_type == sf_type;
    }
    if !is_there {
        return Err(NotMade::Unsuccessful);
    }
    match tx.insert(
        &tables.call_forwarding,
        CallForwarding { s_id, sf_type, start_time, end_time, numberx },
    ) {
        Err(Error::Failure(Failure::DuplicateKey { .. })) => Err(NotMade::Unsuccessful),
        inserted => Ok(inserted?),
    }
}

#[procedure(DeleteCallForwarding)]
#[inline]
pub(super) fn delete_call_forwarding<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    sub_nbr: Number,
    sf_type: u8,
    start_time: u8,
) -> Result<(), NotMade> {
    let s_id = id_of(tx.get_by(&tables.subscriber, Subscriber::SUB_NBR, &sub_nbr)?);
    match tx.delete(&tables.call_forwarding, &(s_id, sf_type, start_time))? {
        true => Ok(()),
        false => Err(NotMade::Unsuccessful),
    }
}

/// Returns the identifier of the subscriber that was found by a number.
#[inline]
fn id_of(found: Option<&Subscriber>) -> u32 {
    found.expect("every drawn number belongs to a subscriber").s_id
}
