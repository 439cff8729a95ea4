//! The three transactions that only read: 80 % of the standard mix.

use std::hint::black_box;

use arrayvec::ArrayVec;
use weft::protocol::Protocol;
use weft::{Error, Failure};
use weft_procedures::{Execute, procedure};

use super::client::Client;
use super::schema::{AccessInfo, Number, START_TIMES, Subscriber};
use super::{Tables, Tatp, failure_of};
use crate::view::View;

/// The input of a transaction that only reads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Query {
    /// `GET_SUBSCRIBER_DATA`: the whole row of a subscriber.
    SubscriberData { s_id: u32 },
    /// `GET_NEW_DESTINATION`: the numbers to which an active facility forwards calls.
    NewDestination { s_id: u32, sf_type: u8, start_time: u8, end_time: u8 },
    /// `GET_ACCESS_DATA`: the data of one type of access.
    AccessData { s_id: u32, ai_type: u8 },
}

/// The result of a query.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    SubscriberData(Option<Subscriber>),
    NewDestination(Destinations),
    AccessData(Option<AccessInfo>),
}

impl Answer {
    /// Returns whether the query found anything, which is the specification's success.
    pub(super) fn is_success(&self) -> bool {
        match self {
            Answer::SubscriberData(row) => row.is_some(),
            Answer::NewDestination(numbers) => !numbers.is_empty(),
            Answer::AccessData(row) => row.is_some(),
        }
    }
}

impl Query {
    pub(super) fn draw_subscriber_data(client: &mut Client) -> Query {
        Query::SubscriberData { s_id: client.draw_subscriber() }
    }

    pub(super) fn draw_new_destination(client: &mut Client) -> Query {
        Query::NewDestination {
            s_id: client.draw_subscriber(),
            sf_type: client.draw_type(),
            start_time: client.draw_start_time(),
            end_time: client.draw_end_time(),
        }
    }

    pub(super) fn draw_access_data(client: &mut Client) -> Query {
        Query::AccessData { s_id: client.draw_subscriber(), ai_type: client.draw_type() }
    }
}

/// Runs a query, on a snapshot if the parameters say so. Returns whether it succeeded.
#[inline]
pub(super) fn execute<P: Protocol>(tatp: &Tatp<P>, query: &Query) -> Result<bool, Failure> {
    let snapshots = tatp.parameters.snapshots;
    let answer = snapshots
        .read(&tatp.database, |snapshot| run::<P>(&tatp.tables, snapshot, query))
        .unwrap_or_else(|| execute_as_transaction(tatp, query));
    let answer = answer.map_err(failure_of)?;
    Ok(black_box(&answer).is_success())
}

/// Executes the query's procedure.
#[inline]
pub(super) fn execute_as_transaction<P: Protocol>(
    tatp: &Tatp<P>,
    query: &Query,
) -> Result<Answer, Error> {
    let Tatp { database, tables, .. } = tatp;
    Ok(match *query {
        Query::SubscriberData { s_id } => {
            Answer::SubscriberData(database.execute(&mut GetSubscriberData::new(tables, s_id))?)
        }
        Query::NewDestination { s_id, sf_type, start_time, end_time } => {
            let mut procedure = GetNewDestination::new(tables, s_id, sf_type, start_time, end_time);
            Answer::NewDestination(database.execute(&mut procedure)?)
        }
        Query::AccessData { s_id, ai_type } => {
            Answer::AccessData(database.execute(&mut GetAccessData::new(tables, s_id, ai_type))?)
        }
    })
}

/// Runs the query on a view.
#[inline]
pub(super) fn run<P: Protocol>(
    tables: &Tables,
    view: &impl View<P>,
    query: &Query,
) -> Result<Answer, Error> {
    match *query {
        Query::SubscriberData { s_id } => {
            Ok(Answer::SubscriberData(get_subscriber_data(tables, view, s_id)?))
        }
        Query::NewDestination { s_id, sf_type, start_time, end_time } => {
            let numbers = get_new_destination(tables, view, s_id, sf_type, start_time, end_time)?;
            Ok(Answer::NewDestination(numbers))
        }
        Query::AccessData { s_id, ai_type } => {
            Ok(Answer::AccessData(get_access_data(tables, view, s_id, ai_type)?))
        }
    }
}

#[procedure(GetSubscriberData, transaction = view)]
#[inline]
pub(super) fn get_subscriber_data<P: Protocol>(
    tables: &Tables,
    view: &impl View<P>,
    s_id: u32,
) -> Result<Option<Subscriber>, Error> {
    Ok(view.get(&tables.subscriber, &s_id)?.cloned())
}

/// The numbers to which calls are forwarded.
type Destinations = ArrayVec<Number, { START_TIMES.len() }>;

#[procedure(GetNewDestination, transaction = view)]
#[inline]
pub(super) fn get_new_destination<P: Protocol>(
    tables: &Tables,
    view: &impl View<P>,
    s_id: u32,
    sf_type: u8,
    start_time: u8,
    end_time: u8,
) -> Result<Destinations, Error> {
    let mut numbers = ArrayVec::new();
    let facility = view.get(&tables.special_facility, &(s_id, sf_type))?;
    if facility.is_some_and(|facility| facility.is_active) {
        let started = (s_id, sf_type, 0)..=(s_id, sf_type, start_time);
        for forwarding in view.range(&tables.call_forwarding, started) {
            let forwarding = forwarding?;
            if end_time < forwarding.end_time {
                numbers.push(forwarding.numberx);
            }
        }
    }
    Ok(numbers)
}

#[procedure(GetAccessData, transaction = view)]
#[inline]
pub(super) fn get_access_data<P: Protocol>(
    tables: &Tables,
    view: &impl View<P>,
    s_id: u32,
    ai_type: u8,
) -> Result<Option<AccessInfo>, Error> {
    Ok(view.get(&tables.access_info, &(s_id, ai_type))?.cloned())
}
