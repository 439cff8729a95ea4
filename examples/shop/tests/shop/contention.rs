//! What the contention report says of the shop, if somebody changes prices by replacing whole items while customers
//! reserve pieces.

use weft::{Database, Transaction, TransactionOptions};
use weft_inspect::{InspectBuilder, InspectDatabase};
use weft_shop::refused::Refused;
use weft_shop::shop::Shop;
use weft_shop::stock::Item;
use weft_shop::{accounts, carts, stock};

#[test]
fn report_names_the_item_whose_price_is_changed() {
    let shop = Shop::open_with(Database::builder().inspect()).unwrap();
    let (database, tables) = (&shop.database, &shop.tables);
    let fill = |tx: &Transaction<'_>| {
        accounts::open(tx, tables, 1, "Ada")?;
        for id in 1..=5 {
            let (name, price_cents, left) = (format!("item {id}"), 100, 1_000);
            stock::put(tx, tables, Item { id, name, price_cents, left })?;
        }
        Ok::<_, Refused>(())
    };
    database.transact(fill).unwrap();
    let reserve = TransactionOptions::new().label("reserve");
    let reprice = TransactionOptions::new().label("reprice");
    for round in 1..=20 {
        let mut is_first = true;
        let repriced = database.transact_with(&reprice, |tx| {
            let mut item = stock::find(tx, tables, 3)?.expect("it is for sale");
            if std::mem::take(&mut is_first) {
                let pieces = |tx: &Transaction<'_>| carts::put(tx, tables, 1, 3, round);
                let customer = || database.transact_with(&reserve, pieces).unwrap();
                std::thread::scope(|scope| scope.spawn(customer).join().unwrap());
            }
            item.price_cents += 1;
            stock::put(tx, tables, item)
        });
        repriced.unwrap();
    }
    let report = database.contention().unwrap();
    let headline = report.headline();
    assert!(headline.starts_with("items 3: ") && headline.contains("by `reprice`"), "{report}");
    assert_eq!(report.points[0].aborts_total(), 20, "{report}");
    assert!(headline.contains("writers of `left`"), "{report}");
}
