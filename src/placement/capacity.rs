//! How much of a member is free, and how many replicas of a pod fit there.

/// An amount of what pods ask of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resources {
    /// Units: thousandths of a CPU.
    pub cpu_milli: u64,
    /// Units: bytes.
    pub memory_bytes: u64,
    /// How many pods.
    pub pods: u64,
}

/// What one member has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Capacity {
    /// How many replicas of the pod in question fit, node by node; 0 where there is no pod.
    pub replicas: u32,
    /// What is free on all its nodes together.
    pub free: Resources,
}
