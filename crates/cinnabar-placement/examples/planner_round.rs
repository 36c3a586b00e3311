//! How long a round of each planner takes, and what its tables take: a volume of 16 TiB.
//!
//! `cargo run --release -p cinnabar-placement --example planner_round`

use cinnabar_placement::planner::{Benefit, BenefitSettings, Mobbs, MobbsSettings, Planner, View};
use cinnabar_placement::{
    Curve, Device, Devices, Direction, Geometry, Header, Heat, Pool, Record, volume,
};

fn devices() -> Option<Devices> {
    let device = |random: f64, rate: f64| {
        let (read, on) = (Curve::line(random, rate).ok()?, Curve::line(2e5, rate).ok()?);
        Some(Device { write: read.clone(), read_on: on.clone(), write_on: on, read })
    };
    Devices::new(device(8e6, 120e6)?, device(3e5, 400e6)?).ok()
}

// Time is what this program is for.
#[allow(clippy::disallowed_methods, clippy::disallowed_types)]
fn timed(what: impl FnOnce()) -> f64 {
    let begin = std::time::Instant::now();
    what();
    begin.elapsed().as_secs_f64() * 1e3
}

fn main() {
    let geometry = Geometry::new(16 << 40, 22).expect("a size");
    let extents = geometry.extents();
    let header = Header::new([0; 16], geometry, 1 << 40);
    let slow = Record::ABSENT.allocated(Pool::Slow, 1).settled();
    let records = (0..extents).map(|extent| (extent, slow));
    let mut opened = None;
    let ms =
        timed(|| opened = volume::Volume::open(header, records, volume::Settings::default()).ok());
    let volume = opened.expect("a sound table");
    println!("{extents} extents; records taken into the table in {ms:.0} ms");
    let table_bytes = 8 * u64::from(extents);
    let heat_bytes = Heat::new(volume.table()).bytes() as u64;
    let an_extent = (table_bytes + heat_bytes) as f64 / f64::from(extents);
    println!("table {table_bytes} bytes, heat {heat_bytes} bytes: {an_extent:.2} bytes an extent");
    let benefit = || -> Box<dyn Planner> {
        let devices = devices().expect("the fast pool is faster");
        Box::new(Benefit::new(BenefitSettings::default(), devices))
    };
    let mobbs = || -> Box<dyn Planner> { Box::new(Mobbs::new(MobbsSettings::default())) };
    println!("| planner | warm extents | longest round, ms |");
    println!("|---|---:|---:|");
    for (planner, warm) in [(benefit(), 100), (mobbs(), 100), (benefit(), 5), (mobbs(), 5)] {
        let mut planner = planner;
        let mut heat = Heat::new(volume.table());
        let mut longest = 0.0_f64;
        for _ in 0..8 {
            let score = planner.score(Direction::Write, 4096, false);
            for extent in (0..extents).filter(|extent| extent % 100 < warm) {
                heat.note(extent, score * (extent.wrapping_mul(0x9e37_79b9) >> 8) as f32 / 1e4);
            }
            let view = View {
                table: volume.table(),
                may_move: &|extent| volume.may_move(extent),
                budget_bytes: header.budget_bytes,
                fast_bytes: volume.fast_bytes(),
                seconds: planner.period_s(),
            };
            let mut moves = Vec::new();
            longest = longest.max(timed(|| planner.round(&mut heat, &view, &mut moves)));
        }
        println!("| {} | {warm} % | {longest:.0} |", planner.name());
    }
}
