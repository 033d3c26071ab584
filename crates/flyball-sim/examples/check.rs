//! Prints the comparison with published measurements:
//! `cargo run --release -p flyball-sim --example check [DOCUMENT]`.

fn main() {
    let document = std::env::args().nth(1);
    match flyball_sim::check::check(document.as_deref()) {
        Ok(report) => {
            for row in &report.rows {
                let met = row.met().map_or("", |met| if met { "ok" } else { "MISS" });
                println!(
                    "{:<34} {:<44} {:>11} {:>10.2} {:>10.2} {:>8.2}% {:4} {}",
                    row.table,
                    row.row,
                    row.quantity,
                    row.published,
                    row.simulated.unwrap_or(f64::NAN),
                    row.error_percent().unwrap_or(0.0),
                    if row.used { "set" } else { "" },
                    met
                );
            }
            println!("{:?}", report.score());
        }
        Err(error) => eprintln!("{error}"),
    }
}
