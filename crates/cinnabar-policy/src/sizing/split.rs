//! Dividing room by what is asked for, not by what it is worth.

/// Sizes in units, in proportion to `weights`, none above its cap; as much of `capacity` as the caps
/// allow, to the unit. Without weight there is no room.
pub fn split(weights: &[f64], caps: &[usize], capacity: usize) -> Vec<usize> {
    let mut sizes = vec![0; weights.len()];
    for _ in 0..capacity {
        // The next unit goes to the volume that would still have least for its weight.
        let price = |volume: usize| (sizes[volume] + 1) as f64 / weights[volume];
        let open = (0..sizes.len()).filter(|&v| sizes[v] < caps[v] && weights[v] > 0.0);
        let Some(next) = open.min_by(|&a, &b| price(a).total_cmp(&price(b))) else { break };
        sizes[next] += 1;
    }
    sizes
}

/// What is asked for, if there is room for all of it; what `otherwise` says, if not.
pub fn meet(
    demands: Vec<usize>,
    capacity: usize,
    otherwise: impl FnOnce(&[usize]) -> Vec<usize>,
) -> Vec<usize> {
    let all = demands.iter().try_fold(0, |sum: usize, demand| sum.checked_add(*demand));
    if all.is_some_and(|all| all <= capacity) { demands } else { otherwise(&demands) }
}
