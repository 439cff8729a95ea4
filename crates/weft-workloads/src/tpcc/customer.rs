//! How Payment and Order-Status find their customer: by number or by last name (clauses 2.5.1.2
//! and 2.6.1.2).

use arrayvec::ArrayString;
use weft::protocol::Protocol;
use weft::{Error, Table};

use super::client::Client;
use super::random::last_name;
use super::schema::{Customer, NAME_BYTES_MAX};
use crate::view::View;

/// What the user knows of the customer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// C_ID.
    Number(u32),
    /// C_LAST.
    LastName(ArrayString<NAME_BYTES_MAX>),
}

impl Selector {
    /// The last name in 60 % of all cases, the number in the others.
    #[inline]
    pub(super) fn draw(client: &mut Client) -> Selector {
        if client.random.chance(60) {
            let names = client.scale.last_names();
            let constant = client.constants.last_name_run;
            Selector::LastName(last_name(client.random.last_name_number(constant, names)))
        } else {
            Selector::Number(client.draw_customer())
        }
    }

    /// The number of the selected customer of a district. `found` is a buffer, left with the
    /// numbers of those who bear the name.
    ///
    /// By last name (clause 2.5.2.2, case 2): of the n customers who bear it, sorted by first
    /// name, the one in position n / 2, rounded up.
    #[inline]
    pub(super) fn find<P: Protocol>(
        &self,
        customers: &Table<Customer, P>,
        view: &impl View<P>,
        (w_id, d_id): (u16, u8),
        found: &mut Vec<u32>,
    ) -> Result<u32, Error> {
        match self {
            Selector::Number(c_id) => Ok(*c_id),
            Selector::LastName(last) => {
                found.clear();
                for customer in view.prefix_by(customers, Customer::BY_NAME, &(w_id, d_id, *last)) {
                    found.push(customer?.c_id);
                }
                Ok(found[found.len().div_ceil(2) - 1])
            }
        }
    }
}
