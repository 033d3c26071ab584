//! Symmetric positive definite matrices, factored as L times its transpose, and equations solved
//! with them.
//!
//! A search has at most a few hundred rounds, so that a plain factorisation takes milliseconds; a
//! linear algebra crate would be ten times the size of this whole crate.

/// The lower triangle L of a matrix A = L L', row by row, with zeros above the diagonal.
#[derive(Debug, Clone)]
pub(crate) struct Cholesky {
    lower: Vec<f64>,
    size: usize,
}

impl Cholesky {
    /// Factors the matrix whose lower triangle is `lower`, row by row. `None` if the matrix is not
    /// positive definite.
    pub(crate) fn new(mut lower: Vec<f64>, size: usize) -> Option<Cholesky> {
        for row in 0..size {
            for column in 0..=row {
                // Both operands are the beginnings of rows: contiguous memory makes this fast.
                let (above, this) = lower.split_at_mut(row * size);
                let known = if column == row {
                    dot(&this[..column], &this[..column])
                } else {
                    dot(&this[..column], &above[column * size..column * size + column])
                };
                let rest = this[column] - known;
                if column < row {
                    this[column] = rest / above[column * size + column];
                } else if rest > 0.0 && rest.is_finite() {
                    this[column] = rest.sqrt();
                } else {
                    return None;
                }
            }
            lower[row * size + row + 1..(row + 1) * size].fill(0.0);
        }
        Some(Cholesky { lower, size })
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.lower[row * self.size..=row * self.size + row]
    }

    /// The logarithm of the determinant of A.
    pub(crate) fn log_determinant(&self) -> f64 {
        2.0 * (0..self.size).map(|row| self.row(row)[row].ln()).sum::<f64>()
    }

    /// Replaces b by the x of L x = b.
    pub(crate) fn solve_lower(&self, b: &mut [f64]) {
        for row in 0..self.size {
            let entries = self.row(row);
            b[row] = (b[row] - dot(&entries[..row], &b[..row])) / entries[row];
        }
    }

    /// The x of A x = b.
    pub(crate) fn solve(&self, b: &[f64]) -> Vec<f64> {
        let mut x = b.to_vec();
        self.solve_lower(&mut x);
        for row in (0..self.size).rev() {
            let entries = self.row(row);
            x[row] /= entries[row];
            // Column by column of the transpose, which is row by row of L.
            let known = x[row];
            for (before, entry) in x[..row].iter_mut().zip(entries) {
                *before -= entry * known;
            }
        }
        x
    }

    pub(crate) fn inverse_diagonal(&self) -> Vec<f64> {
        // A^-1 = L^-T L^-1: entry (i, i) is the squared length of column i of L^-1.
        let mut diagonal = vec![0.0; self.size];
        let mut column = vec![0.0; self.size];
        for (index, entry) in diagonal.iter_mut().enumerate() {
            column[..index].fill(0.0);
            column[index] = 1.0 / self.row(index)[index];
            for row in index + 1..self.size {
                let entries = self.row(row);
                column[row] = -dot(&entries[index..row], &column[index..row]) / entries[row];
            }
            *entry = dot(&column[index..], &column[index..]);
        }
        diagonal
    }

    /// L times z: with independent standard normal z, a draw of a normal vector with covariance A.
    pub(crate) fn times(&self, z: &[f64]) -> Vec<f64> {
        (0..self.size).map(|row| dot(self.row(row), &z[..=row])).collect()
    }
}

/// Number of sums kept at once: four vector registers of two, as many as it takes to start an
/// addition in every cycle.
const LANES: usize = 8;

/// The inner product, in several sums: the compiler may not reorder a single sum, so it could not
/// use vector registers.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a.zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// numpy: `a = [[4,2,0.6,1],[2,5,1.5,0.2],[0.6,1.5,3,0.4],[1,0.2,0.4,2]]`.
    fn example() -> Cholesky {
        let a = vec![4.0, 0.0, 0.0, 0.0, 2.0, 5.0, 0.0, 0.0, 0.6, 1.5, 3.0, 0.0, 1.0, 0.2, 0.4, 2.0];
        Cholesky::new(a, 4).expect("positive definite")
    }

    const LOG_DETERMINANT: f64 = 4.228_764_726_438_784;
    const SOLUTION: [f64; 4] =
        [-0.542_950_559_793_916_6, 0.334_827_282_741_095_97, 0.660_387_805_176_563_8, 2.105_914_990_587_536];
    const INVERSE_DIAGONAL: [f64; 4] =
        [0.361_636_777_964_926_1, 0.293_156_002_121_447_05, 0.402_725_243_471_013_7, 0.594_471_415_832_755_4];
    const TIMES: [f64; 4] = [2.0, -1.0, 0.498_435_971_133_565_64, 3.350_425_489_854_815];

    fn close(got: &[f64], wanted: &[f64]) {
        assert_eq!(got.len(), wanted.len());
        for (got, wanted) in got.iter().zip(wanted) {
            assert!((got - wanted).abs() < 1e-9, "{got} {wanted}");
        }
    }

    #[test]
    fn equals_numpy() {
        let factored = example();
        // numpy.linalg.slogdet(a)[1], numpy.linalg.solve(a, [1, 2, 3, 4]),
        // numpy.diag(numpy.linalg.inv(a)).
        assert!((factored.log_determinant() - LOG_DETERMINANT).abs() < 1e-9);
        close(&factored.solve(&[1.0, 2.0, 3.0, 4.0]), &SOLUTION);
        close(&factored.inverse_diagonal(), &INVERSE_DIAGONAL);
        close(&factored.times(&[1.0, -1.0, 0.5, 2.0]), &TIMES);
    }

    #[test]
    fn indefinite_matrices_are_refused() {
        assert!(Cholesky::new(vec![1.0, 0.0, 2.0, 1.0], 2).is_none());
        assert!(Cholesky::new(vec![f64::NAN], 1).is_none());
        assert!(Cholesky::new(Vec::new(), 0).is_some());
    }
}
