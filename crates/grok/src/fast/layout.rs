//! The order in which a program's operations lie.
//!
//! Every operation goes on with the one that lies behind it, so that the machine need not load where it goes
//! on, which would make each operation wait for the one before. The likely branch of a choice lies behind the
//! choice and the others elsewhere; a jump is only left where two ways meet. A short literal that lies behind
//! an operation without choices becomes part of it.

use super::machine::chooses;
use super::program::{Index, Instruction, NO_CHOICE, NO_LITERAL, Op, Program, Short};

/// Puts the operations in order, into `program`, whose choices are given their new targets.
pub(super) fn lay_out(ops: &[Op], program: &mut Program) {
    let mut layout = Layout {
        ops,
        placed: vec![None; ops.len()],
        order: Vec::with_capacity(ops.len()),
    };
    layout.place_all(program);
    let Layout { placed, order, .. } = layout;
    let moved = |old: Index| placed[old as usize].unwrap_or(0);
    let relinked = |op: Op| match op {
        Op::Jump(target) => Op::Jump(moved(target)),
        Op::NotStart {
            register,
            otherwise,
        } => Op::NotStart {
            register,
            otherwise: moved(landing(ops, otherwise)),
        },
        Op::Shortcut {
            shortcut,
            register,
            capture,
            other,
        } => Op::Shortcut {
            shortcut,
            register,
            capture,
            other: moved(landing(ops, other)),
        },
        op => op,
    };
    let order: Vec<Op> = order.into_iter().map(relinked).collect();
    for target in program
        .switches
        .iter_mut()
        .flat_map(|switch| &mut switch.targets)
    {
        *target = moved(landing(ops, *target));
    }
    program.steps = order
        .iter()
        .map(|&op| Instruction {
            op,
            then: NO_LITERAL,
        })
        .collect();
    let mut count = 0;
    program.choices = order
        .iter()
        .enumerate()
        .map(|(at, &op)| {
            let before = at.checked_sub(1).map(|before| order[before]);
            if !chooses(before, op) {
                return NO_CHOICE;
            }
            count += 1;
            count - 1
        })
        .collect();
    program.choice_count = count as usize;
    for (at, pair) in order.windows(2).enumerate() {
        if pair[0].joins_literal() {
            program.steps[at].then = short_of(pair[1], program);
        }
    }
}

struct Layout<'o> {
    ops: &'o [Op],
    /// Where an operation lies now.
    placed: Vec<Option<Index>>,
    /// The operations in order; jumps still name old places.
    order: Vec<Op>,
}

impl Layout<'_> {
    fn place_all(&mut self, program: &Program) {
        let mut waiting = std::collections::VecDeque::from([0]);
        while let Some(start) = waiting.pop_front() {
            let mut at = landing(self.ops, start);
            if self.placed[at as usize].is_some() {
                continue;
            }
            loop {
                if self.placed[at as usize].is_some() {
                    self.order.push(Op::Jump(at));
                    break;
                }
                self.placed[at as usize] = Some(self.order.len() as Index);
                let op = self.ops[at as usize];
                self.order.push(op);
                let next = match op {
                    Op::Match | Op::NotEnd { .. } => break,
                    Op::Switch { switch, likely } | Op::SwitchIpv6 { switch, likely, .. } => {
                        let targets = &program.switches[usize::from(switch)].targets;
                        waiting.extend(targets);
                        targets[usize::from(likely)]
                    }
                    // Behind a shortcut lies what follows the definition, which the operation after it jumps to.
                    Op::Shortcut { other, .. } => {
                        waiting.push_back(other);
                        at + 1
                    }
                    Op::NotStart { otherwise, .. } => {
                        waiting.push_back(otherwise);
                        at + 1
                    }
                    _ => at + 1,
                };
                at = landing(self.ops, next);
            }
        }
    }
}

fn landing(ops: &[Op], mut at: Index) -> Index {
    while let Op::Jump(target) = ops[at as usize] {
        at = target;
    }
    at
}

/// The literal that an operation is, if it is a short one.
fn short_of(op: Op, program: &mut Program) -> u16 {
    let short = match op {
        Op::Short { short } => return short,
        Op::Byte(byte) => Short::new(&[byte]),
        _ => None,
    };
    let Some(short) = short else {
        return NO_LITERAL;
    };
    let known = program.shorts.iter().position(|other| *other == short);
    let index = known.unwrap_or_else(|| {
        program.shorts.push(short);
        program.shorts.len() - 1
    });
    u16::try_from(index).unwrap_or(NO_LITERAL)
}
