//! The five transactions in pieces: the paper's Figures 10 and 11.
//!
//! DBX-TC (Qian and others, 2015) draws its chopping graphs of TPC-C in these two figures, and describes them as
//! follows:
//!
//! 1. Figure 10 is the default, with commutativity and reordering (§6.2). In practice, conflicts are between tables
//!    (§3.1). The graph has all five transactions, and "very few" can be chopped.
//! 2. In Figure 11 the transactions that only read are not in the graph (§3.2).
//! 3. Each transaction has at most one conflicting piece (Theorem 1).
//! 4. DELIVERY's change of the customer is deferred, and PAYMENT is its subscriber (§3.2).
//! 5. So DELIVERY's accesses to ORDER and ORDER-LINE are no longer in its conflicting piece (§3.2).
//! 6. NEWORDER inserts order lines in its conflicting piece (§3.3).
//! 7. Tables without changes are static (§3.3).
//!
//! The tests compare the result of the analysis with each of these statements.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeSet;

use weft::protocol::Dbx;
use weft::schema::Record;
use weft::{Error, Transaction};
use weft_procedures::chopping::{
    Chopping, ConflictTreatment, Options, PieceKind, StepNumber, Token, admit, chop,
};
use weft_procedures::{Access, Driver, Next, Place, Procedure, StepAccess};

use super::load;
use crate::procedures::outlines_of_workload;
use crate::tpcc::{Parameters, Scale, delivery, new_order, tokens};
use crate::workload::Workload;

fn chopped(options: Options) -> Chopping {
    let outlines = outlines_of_workload("tpcc").expect("it is a workload");
    chop(&outlines, options).expect("the shapes are valid")
}

/// Returns a line for each piece: the procedure, the kind, and its accesses to tables.
fn pieces(chopping: &Chopping) -> String {
    let mut text = String::new();
    for (outline, chopped) in chopping.each().filter(|(_, chopped)| !chopped.on_snapshot) {
        for piece in &chopped.pieces {
            let steps = piece.steps.iter().map(|&step| {
                let step = &outline.steps[step];
                format!("{} {}", step.word(), step.table)
            });
            let steps = steps.collect::<Vec<_>>().join(", ");
            text += &format!("{} | {} | {steps}\n", outline.name, piece.kind);
        }
    }
    text
}

#[test]
fn by_default_very_little_is_chopped() {
    let expected = "\
new_order | reading | read item
new_order | conflicting | read warehouse, read customer, update district, insert order, update stock, insert order_line, insert new_order
payment | conflicting | add warehouse, read warehouse, add district, read district, scan customer, update customer
payment | commutative | insert history
order_status | conflicting | scan customer, read customer, scan order, scan order_line
delivery | conflicting | scan new_order, delete new_order, update order, scan order_line, update order_line, add customer
stock_level | conflicting | read district, scan order_line, read stock
";
    let chopping = chopped(Options::CONVENTIONAL);
    assert_eq!(pieces(&chopping), expected);
}

#[test]
fn all_optimizations_merge_only_what_is_necessary() {
    let expected = "\
new_order | static | read item
new_order | reading | read warehouse
new_order | reading | read customer
new_order | conflicting | update district, insert order, update stock, insert order_line, insert new_order
payment | commutative | add warehouse
payment | reading | read warehouse
payment | commutative | add district
payment | reading | read district
payment | conflicting | scan customer, update customer
payment | commutative | insert history
delivery | conflicting | scan new_order, delete new_order
delivery | exclusive | update order
delivery | exclusive | scan order_line, update order_line
delivery | deferred | add customer
";
    let chopping = chopped(Options::ALL);
    assert_eq!(pieces(&chopping), expected);
    assert_eq!(chopping.static_tables, ["item"]);
    let on_snapshots = chopping.each().filter(|(_, chopped)| chopped.on_snapshot);
    let names: Vec<&str> = on_snapshots.map(|(outline, _)| outline.name.as_str()).collect();
    assert_eq!(names, ["order_status", "stock_level"]);
    // Publishers and subscribers: the figure's dashed line.
    let deferred: BTreeSet<(&str, &str)> = chopping
        .conflicts
        .iter()
        .filter_map(|conflict| match conflict.treatment {
            ConflictTreatment::Deferred { publisher } => {
                Some((publisher, conflict.across(publisher)?))
            }
            _ => None,
        })
        .map(|(publisher, subscriber)| {
            let name = |it: StepNumber| chopping.outline(it.procedure).name.as_str();
            (name(publisher), name(subscriber))
        })
        .collect();
    assert_eq!(deferred, BTreeSet::from([("delivery", "payment")]));
}

/// The functions are written in an order in which they can run in these pieces, including the loops.
#[test]
fn procedures_are_written_in_piece_order() {
    for options in [Options::CONVENTIONAL, Options::ALL] {
        let (any, written) = (chopped(options), chopped(Options { reordering: false, ..options }));
        assert_eq!(any.procedures, written.procedures);
        assert!(any.procedures.iter().all(|chopped| chopped.is_as_written));
    }
}

/// The effect of each optimization: without it, the conflicting pieces have more steps.
#[test]
fn each_optimization_shrinks_conflicting_pieces() {
    let conflicting = |options: Options| -> usize {
        let chopping = chopped(options);
        let pieces = chopping.procedures.iter().flat_map(|chopped| &chopped.pieces);
        pieces
            .filter(|piece| piece.kind == PieceKind::Conflicting)
            .map(|piece| piece.steps.len())
            .sum()
    };
    let all = conflicting(Options::ALL);
    assert_eq!(all, 9);
    for without in [
        Options { columns: false, ..Options::ALL },
        Options { commutativity: false, ..Options::ALL },
        Options { snapshots: false, ..Options::ALL },
        Options { deferral: false, ..Options::ALL },
        Options { tokens: false, ..Options::ALL },
    ] {
        assert!(conflicting(without) > all, "{without:?}");
    }
}

/// The other four procedures run in their pieces when the fifth is added. Their pieces depend on two of the five:
/// without Delivery, New-Order's row of `NEW-ORDER` is a piece of its own, and without Payment, warehouses do not
/// change.
#[test]
fn last_procedure_is_admitted_if_the_pieces_stay() {
    let outlines = outlines_of_workload("tpcc").expect("it is a workload");
    for number in 0..outlines.procedures.len() {
        let mut running = outlines.clone();
        let added = running.procedures.remove(number);
        let admitted = admit(&running, &added, Options::ALL);
        let expected = match added.name.as_str() {
            "delivery" => "'new_order' runs in other pieces: ",
            "payment" => {
                "'new_order' runs in other pieces: warehouse: a static piece becomes a reading one"
            }
            _ => {
                assert!(admitted.is_ok(), "{}: {admitted:?}", added.name);
                continue;
            }
        };
        let error = admitted.expect_err(expected).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    // A procedure that reads balances and districts' orders together.
    let audit = "procedure audit\n update district (d_next_o_id)\n read customer (c_balance)\nend";
    let audit: weft_procedures::chopping::Outlines = audit.parse().expect("it is an outline");
    let error =
        admit(&outlines, &audit.procedures[0], Options::ALL).expect_err("it closes a cycle");
    let text = error.to_string();
    for words in ["'delivery' runs in other pieces", "no longer be deferred", "audit.customer"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// One access by an instance.
struct Event {
    table: &'static str,
    access: Access,
    place: Place,
    key: Option<Box<dyn Any>>,
}

/// A driver that records a procedure's accesses.
struct Recorder<'t, 'db> {
    tx: &'t Transaction<'db, Dbx>,
    events: RefCell<Vec<Event>>,
}

impl Driver<Dbx> for Recorder<'_, '_> {
    fn transaction(&self) -> &Transaction<'_, Dbx> {
        self.tx
    }

    fn enter<T: Record>(&self, accessed: &StepAccess<'_, T>) -> Result<(), Error> {
        self.events.borrow_mut().push(Event {
            table: T::TABLE,
            access: accessed.access,
            place: accessed.place.clone(),
            key: accessed.key.map(|key| Box::new(key.clone()) as Box<dyn Any>),
        });
        Ok(())
    }

    fn end_pass(&self, _is_ok: bool) -> Next {
        Next::Return
    }
}

/// An order's key.
type OrderKey = (u16, u8, u32);

/// Returns the orders' keys in an access to rows that have tokens. An access to anything else is an error.
fn order_of(event: &Event) -> Result<Vec<OrderKey>, String> {
    let wrong = || Err(format!("{} at {:?}", event.access, event.place));
    match &event.key {
        Some(key) => {
            match (key.downcast_ref::<OrderKey>(), key.downcast_ref::<(u16, u8, u32, u8)>()) {
                (Some(&key), _) => Ok(vec![key]),
                (_, Some(&(w_id, d_id, o_id, _))) => Ok(vec![(w_id, d_id, o_id)]),
                _ => wrong(),
            }
        }
        None => wrong(),
    }
}

/// Returns whether a scan is about the lines of this order and no others.
fn is_of_order(place: &Place, (w_id, d_id, o_id): OrderKey) -> bool {
    let has = |o_id: u32, number: u8| Place::key(&(w_id, d_id, o_id, number)).may_meet(place);
    has(o_id, 0) && has(o_id, u8::MAX) && !has(o_id - 1, u8::MAX) && !has(o_id + 1, 0)
}

/// Returns the accesses without a token. `inserted` has the keys of all earlier tokens.
fn strays(token: &Token, events: &[Event], inserted: &mut BTreeSet<OrderKey>) -> Vec<String> {
    let mut strays = Vec::new();
    let mut own = BTreeSet::new();
    for event in events.iter().filter(|event| event.table == token.table) {
        if let (Access::Insert | Access::Delete, Ok(keys)) = (event.access, order_of(event)) {
            for key in keys {
                own.insert(key);
                if event.access == Access::Insert && !inserted.insert(key) {
                    strays.push(format!("the token {key:?} is inserted twice"));
                }
            }
        }
    }
    for event in events.iter().filter(|event| token.tables.iter().any(|it| it == event.table)) {
        let keeps = match (event.access, order_of(event)) {
            (Access::Scan, _) => own.iter().any(|&key| is_of_order(&event.place, key)),
            (_, Ok(keys)) => keys.iter().all(|key| own.contains(key)),
            (_, Err(_)) => false,
        };
        if !keeps {
            strays.push(format!(
                "{} {} {:?} without its token",
                event.access, event.table, event.place
            ));
        }
    }
    strays
}

/// Runs some of the two transactions that access orders. Returns the accesses without a token.
fn recorded(token: &Token) -> Vec<String> {
    let tpcc = load(Parameters { scale: Scale::TINY, ..Parameters::default() }, 3, 1);
    let tables = &tpcc.tables;
    let mut client = tpcc.client(5, 0, 1);
    let (mut all, mut inserted) = (Vec::new(), BTreeSet::new());
    let mut touched = 0;
    for round in 0..120 {
        let events = tpcc.database().transact(|tx| {
            let recorder = Recorder { tx, events: RefCell::default() };
            match round % 3 {
                0 => {
                    let input = delivery::Input::draw(&mut client);
                    delivery::Delivery::new(tables, &input).execute(&recorder)?;
                }
                _ => {
                    let input = new_order::Input::draw(&mut client);
                    let mut output = new_order::Output::default();
                    let mut procedure = new_order::NewOrder::new(tables, &input, &mut output);
                    match procedure.execute(&recorder) {
                        Ok(()) | Err(new_order::OrderError::UnusedItem) => {}
                        Err(new_order::OrderError::Engine(error)) => return Err(error),
                    }
                }
            }
            Ok::<_, Error>(recorder.events.take())
        });
        let events = events.expect("no other client is running");
        touched +=
            events.iter().filter(|it| token.tables.iter().any(|name| name == it.table)).count();
        all.extend(strays(token, &events, &mut inserted));
    }
    assert!(touched > 500, "{touched}");
    all
}

/// The workload declares that a row of `NEW-ORDER` is an order's token. Checks this for the keys in the database.
#[test]
fn orders_are_guarded_by_their_tokens() {
    for token in tokens() {
        let strays = recorded(&token);
        assert!(strays.is_empty(), "{strays:?}");
    }
}

/// Checks that the test above can fail: stock has no tokens.
#[test]
fn false_token_is_detected() {
    let token = Token { table: "new_order".to_owned(), tables: vec!["stock".to_owned()] };
    assert!(!recorded(&token).is_empty());
}
