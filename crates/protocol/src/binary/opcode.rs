//! The opcodes of memcached 1.6.45. Those with a `Q` are quiet: they report only what is not the usual outcome.

#![expect(missing_docs, reason = "the names are the protocol's")]

pub const GET: u8 = 0x00;
pub const SET: u8 = 0x01;
pub const ADD: u8 = 0x02;
pub const REPLACE: u8 = 0x03;
pub const DELETE: u8 = 0x04;
pub const INCREMENT: u8 = 0x05;
pub const DECREMENT: u8 = 0x06;
pub const QUIT: u8 = 0x07;
pub const FLUSH: u8 = 0x08;
pub const GETQ: u8 = 0x09;
pub const NOOP: u8 = 0x0a;
pub const VERSION: u8 = 0x0b;
pub const GETK: u8 = 0x0c;
pub const GETKQ: u8 = 0x0d;
pub const APPEND: u8 = 0x0e;
pub const PREPEND: u8 = 0x0f;
pub const STAT: u8 = 0x10;
pub const SETQ: u8 = 0x11;
pub const ADDQ: u8 = 0x12;
pub const REPLACEQ: u8 = 0x13;
pub const DELETEQ: u8 = 0x14;
pub const INCREMENTQ: u8 = 0x15;
pub const DECREMENTQ: u8 = 0x16;
pub const QUITQ: u8 = 0x17;
pub const FLUSHQ: u8 = 0x18;
pub const APPENDQ: u8 = 0x19;
pub const PREPENDQ: u8 = 0x1a;
pub const VERBOSITY: u8 = 0x1b;
pub const TOUCH: u8 = 0x1c;
pub const GAT: u8 = 0x1d;
pub const GATQ: u8 = 0x1e;
pub const SASL_LIST_MECHANISMS: u8 = 0x20;
pub const SASL_AUTH: u8 = 0x21;
pub const SASL_STEP: u8 = 0x22;
pub const GATK: u8 = 0x23;
pub const GATKQ: u8 = 0x24;

/// The quiet opcodes, a bit each.
const QUIET_OPCODES: u64 = opcode_bits(&[
    GETQ, GETKQ, SETQ, ADDQ, REPLACEQ, DELETEQ, INCREMENTQ, DECREMENTQ, QUITQ, FLUSHQ, APPENDQ,
    PREPENDQ, GATQ, GATKQ,
]);

/// The opcodes whose responses repeat the key, a bit each.
const KEY_RETURNING_OPCODES: u64 = opcode_bits(&[GETK, GETKQ, GATK, GATKQ]);

const fn opcode_bits(mut opcodes: &[u8]) -> u64 {
    let mut bits = 0;
    while let [opcode, rest @ ..] = opcodes {
        bits |= 1 << *opcode;
        opcodes = rest;
    }
    bits
}

/// Whether the usual outcome of `opcode` is not reported.
#[inline]
pub const fn is_quiet(opcode: u8) -> bool {
    opcode < 64 && (QUIET_OPCODES >> opcode) & 1 == 1
}

/// The opcode that reports every outcome, in place of a quiet one: responses to quiet requests have it.
pub const fn without_quiet(opcode: u8) -> u8 {
    match opcode {
        GETQ => GET,
        GETKQ => GETK,
        SETQ..=QUITQ => opcode - SETQ + SET,
        FLUSHQ => FLUSH,
        APPENDQ => APPEND,
        PREPENDQ => PREPEND,
        GATQ => GAT,
        GATKQ => GATK,
        opcode => opcode,
    }
}

/// The quiet form of an opcode of one key, or itself if it has none, as a touch.
pub const fn quiet_form(opcode: u8) -> u8 {
    match opcode {
        GET => GETQ,
        GETK => GETKQ,
        SET..=DECREMENT => opcode - SET + SETQ,
        APPEND => APPENDQ,
        PREPEND => PREPENDQ,
        GAT => GATQ,
        GATK => GATKQ,
        opcode => opcode,
    }
}

/// Whether a response to `opcode` repeats the key.
#[inline]
pub const fn returns_key(opcode: u8) -> bool {
    opcode < 64 && (KEY_RETURNING_OPCODES >> opcode) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_quiet_opcode_has_a_form_that_is_not_quiet() {
        let quiet_opcodes: Vec<u8> = (0..=255).filter(|opcode| is_quiet(*opcode)).collect();
        let loud_opcodes: Vec<u8> =
            quiet_opcodes.iter().map(|opcode| without_quiet(*opcode)).collect();
        let expected = [
            GET, GETK, SET, ADD, REPLACE, DELETE, INCREMENT, DECREMENT, QUIT, FLUSH, APPEND,
            PREPEND, GAT, GATK,
        ];
        assert_eq!(loud_opcodes, expected);
        assert_eq!(without_quiet(NOOP), NOOP);
        for (quiet, loud) in quiet_opcodes.into_iter().zip(loud_opcodes) {
            let has_no_key = matches!(loud, QUIT | FLUSH);
            assert_eq!(quiet_form(loud), if has_no_key { loud } else { quiet });
        }
        assert_eq!(quiet_form(TOUCH), TOUCH);
    }

    #[test]
    fn fourteen_opcodes_are_quiet_and_four_return_the_key() {
        assert_eq!((0..=255).filter(|opcode| is_quiet(*opcode)).count(), 14);
        assert_eq!((0..=255).filter(|opcode| returns_key(*opcode)).count(), 4);
        assert!(is_quiet(GATKQ) && returns_key(GATKQ) && !is_quiet(NOOP) && !is_quiet(TOUCH));
    }
}
