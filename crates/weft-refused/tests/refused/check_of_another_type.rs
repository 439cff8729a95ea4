use weft::Record;

#[derive(Clone, Record)]
#[record(check = Account::check)]
struct Account {
    #[record(key)]
    id: u64,
}

impl Account {
    fn check(&self) -> bool {
        self.id > 0
    }
}

fn main() {}
