//! The clients of a shop, each a thread.

use std::path::Path;

use fastrand::Rng;

use super::{ACCOUNTS, Durability, ITEMS, PLENTY, PRICE, Shop, Totals};
use crate::round::{Contender, Padded, Plan, Round, run_round};
use crate::store::Result;

/// A shop and its clients.
pub struct ShopAndClients<S> {
    shop: S,
    clients: Vec<Padded<Client>>,
}

/// A client, which has some of the accounts.
struct Client {
    first_account: u64,
    random: Rng,
    is_hot: bool,
    orders: u64,
    key: String,
}

impl Client {
    /// Fills a cart, and orders it.
    fn run<S: Shop>(&mut self, shop: &S) -> Result<()> {
        let account = self.first_account + self.random.u64(..ACCOUNTS);
        let items = if self.is_hot {
            [0, 1]
        } else {
            let first = self.random.u64(..ITEMS - 1);
            [first, self.random.u64(first + 1..ITEMS)]
        };
        shop.put_in_cart(account, items)?;
        self.key.clear();
        // A client's own name is part of the key, as in the shop.
        self.key += &account.to_string();
        self.key += "/order ";
        self.key += &self.orders.to_string();
        shop.order(account, &self.key)?;
        self.orders += 1;
        Ok(())
    }
}

impl<S: Shop> ShopAndClients<S> {
    /// Opens a shop for as many clients.
    pub fn open(
        directory: &Path,
        durability: Durability,
        is_hot: bool,
        threads: usize,
    ) -> Result<Self> {
        let client = |thread: u64| {
            let random = Rng::with_seed(thread);
            let first_account = thread * ACCOUNTS;
            Padded(Client { first_account, random, is_hot, orders: 0, key: String::new() })
        };
        let shop = S::open(directory, durability, threads as u64 * ACCOUNTS)?;
        Ok(ShopAndClients { shop, clients: (0..threads as u64).map(client).collect() })
    }
}

impl<S: Shop> Contender for ShopAndClients<S> {
    fn round(&mut self, plan: &Plan) -> Result<Round> {
        let shop = &self.shop;
        run_round(plan, &mut self.clients, |client: &mut Client| client.run(shop))
    }

    fn verify(&self) -> Result<()> {
        let orders: u64 = self.clients.iter().map(|Padded(client)| client.orders).sum();
        let pieces = 2 * orders.cast_signed();
        let accounts = (self.clients.len() as u64 * ACCOUNTS).cast_signed();
        let expected = Totals {
            left: PLENTY * ITEMS.cast_signed() - pieces,
            reserved: 0,
            sold: pieces,
            ordered: pieces,
            orders,
            cents: PLENTY * accounts - PRICE * pieces,
            results: orders,
        };
        let totals = self.shop.totals()?;
        if totals == expected {
            return Ok(());
        }
        Err(format!("the shop has {totals:?}, and must have {expected:?}").into())
    }
}
