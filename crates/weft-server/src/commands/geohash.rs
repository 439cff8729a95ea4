//! Places on the Earth as numbers: Redis's geohashes of 52 bits, which are scores of sorted sets.
//!
//! Longitude and latitude are each halved again and again. The bits that say which half alternate, so numbers with the same
//! beginning are places in the same cell.

/// How many times each coordinate is halved.
const STEPS_MAX: u32 = 26;
/// The radius of the Earth that Redis takes, in metres.
const EARTH: f64 = 6_372_797.560_856;
/// Half the width of the map in the projection of Mercator, in metres.
const MERCATOR_MAX: f64 = 20_037_726.37;

const LONGITUDES: (f64, f64) = (-180.0, 180.0);
const LATITUDES: (f64, f64) = (-85.051_128_78, 85.051_128_78);

/// A place, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// East of Greenwich.
    pub longitude: f64,
    /// North of the equator.
    pub latitude: f64,
}

/// A cell of the grid that has so many steps, by its column and row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    steps: u32,
    column: u32,
    row: u32,
}

/// Returns a number whose even bits are those of the argument.
fn spread(bits: u32) -> u64 {
    let mut bits = u64::from(bits);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Returns the even bits of a number.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        bits = (bits | bits >> shift) & mask;
    }
    bits as u32
}

impl Cell {
    fn of(place: Place, steps: u32, latitudes: (f64, f64)) -> Self {
        let step = |value: f64, (least, greatest): (f64, f64)| {
            ((value - least) / (greatest - least) * (1_u64 << steps) as f64) as u32
        };
        Cell {
            steps,
            column: step(place.longitude, LONGITUDES),
            row: step(place.latitude, latitudes),
        }
    }

    /// Returns the bits of both coordinates, alternately.
    fn bits(self) -> u64 {
        spread(self.column) << 1 | spread(self.row)
    }

    /// Returns the least and the greatest longitude and latitude.
    fn bounds(self) -> ((f64, f64), (f64, f64)) {
        let bounds = |at: u32, (least, greatest): (f64, f64)| {
            let edge = |at: f64| least + at / (1_u64 << self.steps) as f64 * (greatest - least);
            (edge(f64::from(at)), edge(f64::from(at) + 1.0))
        };
        (bounds(self.column, LONGITUDES), bounds(self.row, LATITUDES))
    }

    /// Returns the cell so many columns and rows away, around the edges of the map.
    fn beside(self, columns: i32, rows: i32) -> Self {
        let mask = ((1_u64 << self.steps) - 1) as u32;
        let column = self.column.wrapping_add_signed(columns) & mask;
        Cell { column, row: self.row.wrapping_add_signed(rows) & mask, ..self }
    }

    /// Returns the scores of the places in the cell: from the first up to, and without, the last.
    fn scores(self) -> (u64, u64) {
        let shift = 2 * (STEPS_MAX - self.steps);
        (self.bits() << shift, (self.bits() + 1) << shift)
    }
}

impl Place {
    /// Returns the place, if there is one on the map.
    pub fn new(longitude: f64, latitude: f64) -> Option<Self> {
        let is_in = |value: f64, (least, greatest): (f64, f64)| (least..=greatest).contains(&value);
        let is_there = is_in(longitude, LONGITUDES) && is_in(latitude, LATITUDES);
        is_there.then_some(Place { longitude, latitude })
    }

    /// Returns the number of the place.
    pub fn score(self) -> u64 {
        Cell::of(self, STEPS_MAX, LATITUDES).bits()
    }

    /// Returns the middle of the cell that a number stands for.
    pub fn of_score(score: u64) -> Self {
        let cell = Cell { steps: STEPS_MAX, column: gather(score >> 1), row: gather(score) };
        let (longitudes, latitudes) = cell.bounds();
        let middle = |(least, greatest): (f64, f64), limits: (f64, f64)| {
            ((least + greatest) / 2.0).clamp(limits.0, limits.1)
        };
        Place { longitude: middle(longitudes, LONGITUDES), latitude: middle(latitudes, LATITUDES) }
    }

    /// Returns the text of 11 letters by which other programs know the place. They halve latitudes from pole to pole.
    pub fn geohash(self) -> String {
        const LETTERS: &[u8] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = Cell::of(self, STEPS_MAX, (-90.0, 90.0)).bits();
        // The last letter would need more bits than there are.
        let letters =
            (1..=11).map(|place| if place == 11 { 0 } else { bits >> (52 - 5 * place) & 31 });
        letters.map(|letter| char::from(LETTERS[letter as usize])).collect()
    }

    /// Returns how far another place is, in metres, by the formula of haversines.
    pub fn distance(self, other: Place) -> f64 {
        let [from, to] = [self.latitude.to_radians(), other.latitude.to_radians()];
        let v = ((other.longitude.to_radians() - self.longitude.to_radians()) / 2.0).sin();
        if v == 0.0 {
            return EARTH * (to - from).abs();
        }
        let u = ((to - from) / 2.0).sin();
        2.0 * EARTH * (u * u + from.cos() * to.cos() * v * v).sqrt().asin()
    }
}

/// What a search takes in, around a place; in metres.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A circle with this radius.
    Circle(f64),
    /// A box with this width and height.
    Box(f64, f64),
}

impl Shape {
    /// Returns how far a place is from the middle, if it is within the shape.
    pub fn takes_in(self, middle: Place, place: Place) -> Option<f64> {
        let distance = middle.distance(place);
        let is_within = match self {
            Shape::Circle(radius) => distance <= radius,
            Shape::Box(width, height) => {
                let beside = Place { longitude: middle.longitude, ..place };
                middle.distance(beside) <= height / 2.0 && place.distance(beside) <= width / 2.0
            }
        };
        is_within.then_some(distance)
    }

    /// Returns ranges of scores which have all places within the shape, in the order in which Redis looks at them.
    pub fn ranges(self, middle: Place) -> Vec<(u64, u64)> {
        let (width, height, radius) = match self {
            Shape::Circle(radius) => (radius, radius, radius),
            Shape::Box(width, height) => {
                (width / 2.0, height / 2.0, (width / 2.0).hypot(height / 2.0))
            }
        };
        let tall = (height / EARTH).to_degrees();
        // The shape is widest, in degrees, where it is nearest to a pole.
        let nearest = middle.latitude + if middle.latitude < 0.0 { -tall } else { tall };
        let wide = (width / EARTH / nearest.to_radians().cos()).to_degrees();
        let (west, east) = (middle.longitude - wide, middle.longitude + wide);
        let (south, north) = (middle.latitude - tall, middle.latitude + tall);

        let mut cell = Cell::of(middle, steps_for(radius, middle.latitude), LATITUDES);
        let is_covered = cell.beside(0, 1).bounds().1.1 >= north
            && cell.beside(0, -1).bounds().1.0 <= south
            && cell.beside(1, 0).bounds().0.1 >= east
            && cell.beside(-1, 0).bounds().0.0 <= west;
        if !is_covered && cell.steps > 1 {
            cell = Cell::of(middle, cell.steps - 1, LATITUDES);
        }
        let (longitudes, latitudes) = cell.bounds();
        // Cells on a side where the one in the middle covers everything are left out.
        let spares = cell.steps >= 2;
        let is_needed = |columns: i32, rows: i32| {
            !(spares
                && (rows < 0 && latitudes.0 < south
                    || rows > 0 && latitudes.1 > north
                    || columns < 0 && longitudes.0 < west
                    || columns > 0 && longitudes.1 > east))
        };
        let around = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let mut cells: Vec<Cell> = Vec::new();
        for (columns, rows) in around.into_iter().filter(|(x, y)| is_needed(*x, *y)) {
            let beside = cell.beside(columns, rows);
            // With few steps a cell is its own neighbour.
            if !cells.contains(&beside) {
                cells.push(beside);
            }
        }
        cells.into_iter().map(Cell::scores).collect()
    }
}

/// Returns how many steps make cells that are about as large as a radius.
fn steps_for(mut radius: f64, latitude: f64) -> u32 {
    if radius == 0.0 {
        return STEPS_MAX;
    }
    let mut steps = 1_u32;
    while radius < MERCATOR_MAX && steps < 64 {
        radius *= 2.0;
        steps += 1;
    }
    // Cells near the poles are narrow.
    let less = 2 + u32::from(latitude.abs() > 66.0) + u32::from(latitude.abs() > 80.0);
    steps.saturating_sub(less).clamp(1, STEPS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_places_again() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..1000 {
            let (longitude, latitude) = (random.f64() * 360.0 - 180.0, random.f64() * 170.0 - 85.0);
            let place = Place::new(longitude, latitude).unwrap();
            let again = Place::of_score(place.score());
            assert!(place.distance(again) < 1.0, "{place:?}");
            assert_eq!(again.score(), place.score());
        }
        assert!(Place::new(180.1, 0.0).is_none() && Place::new(0.0, 86.0).is_none());
    }

    #[test]
    fn ranges_have_every_place_within_a_shape() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..3000 {
            let middle =
                Place::new(random.f64() * 340.0 - 170.0, random.f64() * 140.0 - 70.0).unwrap();
            let size = 10_f64.powf(random.f64() * 5.5);
            let shape = match random.bool() {
                true => Shape::Circle(size),
                false => Shape::Box(size, size * random.f64()),
            };
            let ranges = shape.ranges(middle);
            for _ in 0..20 {
                let by = size / 50_000.0;
                let shift = |random: &mut fastrand::Rng| (random.f64() - 0.5) * by;
                let place = Place::new(
                    middle.longitude + shift(&mut random),
                    middle.latitude + shift(&mut random),
                );
                let Some(place) = place else { continue };
                let place = Place::of_score(place.score());
                if shape.takes_in(middle, place).is_some() {
                    let score = place.score();
                    let is_found =
                        ranges.iter().any(|(first, end)| (*first..*end).contains(&score));
                    assert!(is_found, "seed {seed}: {middle:?} {shape:?} {place:?}");
                }
            }
        }
    }
}
