//! Which faults a seed has, and how many. Few seeds have all: what would be hidden behind the one fault is then found without it.

use counterfoil_lin::Rng;

/// Chances are out of a thousand.
#[derive(Debug, Clone, Default)]
pub struct Weather {
    /// For each append.
    pub crash_before_append: u32,
    pub crash_after_append: u32,
    pub fsync_error: u32,
    pub slow_store: u32,
    /// A moment on the wire, as always. Without it, everything is written at once.
    pub wire: u32,
    pub ghost: u32,
    /// For each read.
    pub slow_read: u32,
    pub read_error: u32,
    /// For each request to the world.
    pub crash_at_dispatch: u32,
    pub request_lost: u32,
    pub slow_request: u32,
    pub refused: u32,
    pub busy: u32,
    pub answer_lost: u32,
    pub answer_error: u32,
    pub panic: u32,
    pub cannot_tell: u32,
    /// How many in the first phase.
    pub crashes: usize,
    pub power_cuts: usize,
    pub pauses: usize,
    pub partitions: usize,
    pub full_disks: usize,
    pub clock_steps: usize,
    /// Processes are on several machines, and know the time only roughly.
    pub spread: bool,
    /// Processes of one machine know by their locks who is dead.
    pub locks: bool,
    /// Processes hear of each other's commits.
    pub hearing: bool,
}

impl Weather {
    pub fn of(rng: &mut Rng) -> Self {
        let spread = rng.percent(40);
        let mut few = |share: u8, most: usize| if rng.percent(share) { 1 + rng.below(most) } else { 0 };
        let mut rare = |share: u8, most: usize| few(share, most) as u32;
        Self {
            crash_before_append: rare(25, 60),
            crash_after_append: rare(30, 80),
            fsync_error: rare(30, 120),
            slow_store: rare(35, 150),
            wire: 300,
            ghost: rare(20, 80),
            slow_read: rare(30, 60),
            read_error: rare(15, 40),
            crash_at_dispatch: rare(30, 120),
            request_lost: rare(35, 200),
            slow_request: rare(45, 400),
            refused: rare(50, 250),
            busy: rare(45, 400),
            answer_lost: rare(45, 300),
            answer_error: rare(40, 300),
            panic: rare(15, 100),
            cannot_tell: rare(40, 500),
            crashes: few(55, 3),
            power_cuts: few(15, 2),
            pauses: few(45, 3),
            partitions: few(40, 3),
            full_disks: few(15, 2),
            clock_steps: if spread { 0 } else { few(20, 2) },
            spread,
            locks: !spread && few(40, 1) > 0,
            hearing: few(70, 1) > 0,
        }
    }

    /// Nothing goes wrong any more.
    pub fn fine(&self) -> Self {
        Self { wire: self.wire, spread: self.spread, locks: self.locks, hearing: self.hearing, ..Self::default() }
    }
}
