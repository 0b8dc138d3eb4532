//! Parses inline assembly and accepts only what is on a list.
//!
//! A step may use `asm!` for what it computes: moves, arithmetic, vector instructions, fences, and jumps to labels of
//! the same block. Everything else is refused, because a list of forbidden instructions always misses one: calls and
//! returns, system calls, jumps through a register, names of symbols, directives, named labels, the stack pointer and
//! the instruction pointer, counters of the processor.
//!
//! A template is read the way the assembler reads it: in the Intel syntax on x86 (`att_syntax` is refused), statements
//! end at a line's end or at `;`, a statement may begin with labels and with a prefix. Placeholders such as `{}` and
//! `{a:q}` stand for operands, never for an instruction.

use super::tokens::{Kind, Token};
use super::{HIDDEN, MACHINE, Refused, refused};

/// Instructions of x86-64, with and without vectors. A name that ends in `*` stands for all that begin with it.
const X86: &str = "mov* cmov* set* lea add* sub* adc* adox sbb inc dec neg not and* or xor* shl* shr* sal sar* rol ror* \
    shld shrd cmp* test imul mul* div* idiv bswap bsf bsr bt btc btr bts lzcnt tzcnt popcnt bextr blsi blsmsk blsr bzhi pdep \
    pext xchg xadd cbw cwde cdqe cwd cdq cqo nop pause prefetch* lfence sfence mfence stosb stosw stosd stosq lodsb \
    lodsw lodsd lodsq padd* psub* pand* por pxor pcmp* pshuf* psll* psrl* psra* pmul* pmadd* punpck* pack* pextr* \
    pinsr* pabs* pmax* pmin* pavg* pmov* palignr pblend* phadd* phsub* phminposuw ptest pclmul* psadbw psign* sqrt* \
    max* min* rcp* rsqrt* orps orpd shufps shufpd unpck* cvt* comis* ucomis* blend* dpps dppd insertps extractps \
    round* haddp* hsubp* lddqu maskmov* aes* gf2p8* sha1* sha256* crc32 kmov* kand* kor* kxor* kxnor* knot* kadd* \
    kshift* kunpck* ktest* emms ldtilecfg sttilecfg tile* tdp* va* vb* vc* vd* vex* vf* vg* vh* vi* vl* vmask* vmax* \
    vmin* vmov* vmpsadbw vmul* vn* vor* vp* vr* vs* vtest* vu* vx* vz*";

/// Instructions of `AArch64` and its vectors.
const AARCH64: &str = "movi movn movz movk mvn mvni fmov dup ins umov smov ld1* ld2* ld3* ld4* st1* st2* st3* st4* ldr \
    ldrb ldrh ldrsb ldrsh ldrsw ldp ldpsw ldnp ldur* str strb strh stp stnp stur* prfm prfum dmb dsb csel csinc csinv \
    csneg sbc sbcs cset csetm cinc cinv cneg cmn tst ccmp ccmn abs negs ngc madd msub mneg smull smull2 umull umull2 smulh \
    umulh sdiv udiv lsl lsr asr extr ubfx ubfiz ubfm sbfx sbfiz sbfm bfi bfxil bfm bfc orr orn eor eon bic bics bif \
    bit bsl clz cls rbit rev rev16 rev32 rev64 cnt sxtb sxth sxtw uxtb uxth tbl tbx zip1 zip2 uzp1 uzp2 trn1 trn2 ext \
    mla mls fadd* fsub* fmul* fmla* fmls* fmadd fmsub fnmadd fnmsub fnmul fdiv fsqrt fabs fabd fneg fmax* fmin* fcvt* \
    frint* frecp* frsqrt* fcm* fcsel fac* scvtf ucvtf bfcvt* bfdot bfmlal* bfmmla cmeq cmge cmgt cmhi cmhs cmle cmlt \
    cmtst sshr ushr srshr urshr ssra usra srsra ursra sshl ushl srshl urshl sshll sshll2 ushll ushll2 shll shll2 sli \
    sri shrn shrn2 rshrn rshrn2 sq* uq* suqadd usqadd xtn xtn2 sxtl sxtl2 uxtl uxtl2 saba* uaba* sabd* uabd* sadd* \
    uadd* ssub* usub* shadd uhadd shsub uhsub srhadd urhadd smax* umax* smin* umin* smla* umla* smls* umls* smmla \
    ummla usmmla sdot udot usdot sudot pmull pmull2 raddhn* rsubhn* addhn* subhn* faddp saddl* uaddl* eor3 bcax";

/// Prefixes of an instruction.
const PREFIXES: [&str; 6] = ["lock", "rep", "repe", "repz", "repne", "repnz"];

/// Jumps: their last operand is a label of the same block.
const JUMPS: &str = "jmp ja jae jb jbe jc je jg jge jl jle jna jnae jnb jnbe jnc jne jng jnge jnl jnle jno jnp jns jnz \
    jo jp jpe jpo js jz loop b b.eq b.ne b.cs b.hs b.cc b.lo b.mi b.pl b.vs b.vc b.hi b.ls b.ge b.lt b.gt b.le b.al \
    cbz cbnz tbz tbnz";

/// Words in operands that are neither registers nor numbers.
const KEYWORDS: &str = "byte word dword fword qword tbyte oword xmmword ymmword zmmword ptr z sae rn-sae \
    rd-sae ru-sae rz-sae rn rd ru rz lsl lsr asr ror msl uxtb uxth uxtw uxtx sxtb sxth sxtw sxtx mul vl eq ne cs hs cc \
    lo mi pl vs vc hi ls ge lt gt le al ish ishld ishst sy st ld nsh osh pldl1keep pldl1strm pldl2keep pldl2strm \
    pldl3keep pldl3strm pstl1keep pstl1strm pstl2keep pstl2strm pstl3keep pstl3strm m";

/// Registers of x86-64 whose names have no number. The stack pointer and the segments are not among them.
const NAMED: &str = "rax rbx rcx rdx rsi rdi rbp eax ebx ecx edx esi edi ebp ax bx cx dx si di bp al bl cl dl ah bh ch \
    dh sil dil bpl xzr wzr";

/// The prefixes of numbered registers, each with the largest number.
const NUMBERED: [(&str, u32); 17] = [
    ("xmm", 31),
    ("ymm", 31),
    ("zmm", 31),
    ("tmm", 7),
    ("mm", 7),
    ("k", 7),
    ("r", 31),
    ("x", 28),
    ("w", 28),
    ("v", 31),
    ("z", 31),
    ("p", 15),
    ("q", 31),
    ("d", 31),
    ("s", 31),
    ("h", 31),
    ("b", 31),
];

/// Stands for a placeholder, once a template is read.
const PLACEHOLDER: char = '@';

/// Refuses `asm!( ... )` at `at` if anything in it is not on the lists, and another name for `asm`.
pub(super) fn look_through(tokens: &[Token], at: usize) -> Result<(), Refused> {
    if tokens[at].word() != Some("asm") {
        return Ok(());
    }
    let next = tokens.get(at + 1);
    if next.and_then(Token::word) == Some("as") {
        return Err(refused(&tokens[at], "asm as", HIDDEN));
    }
    if !next.is_some_and(|token| token.is('!')) {
        return Ok(());
    }
    let arguments = arguments(&tokens[at + 2..]);
    for argument in &arguments {
        operand(argument)?;
    }
    let templates = arguments.iter().filter_map(|argument| match argument {
        [Token { kind: Kind::Text(text), .. }] => Some((&argument[0], text.as_str())),
        _ => None,
    });
    block(&templates.collect::<Vec<_>>())
}

/// The arguments of a macro from its opening bracket on, without the commas between them.
fn arguments(tokens: &[Token]) -> Vec<&[Token]> {
    let (mut depth, mut begin) = (0, 1);
    let mut arguments = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Sign('(' | '[' | '{') => depth += 1,
            Kind::Sign(')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        let ends = depth == 0 || (depth == 1 && token.is(','));
        if ends && begin <= i {
            arguments.push(&tokens[begin..i]);
            begin = i + 1;
        }
        if depth == 0 {
            break;
        }
    }
    arguments.retain(|argument| !argument.is_empty());
    arguments
}

/// Refuses an argument of `asm!` that is neither a template in plain sight nor an operand of a known kind.
fn operand(argument: &[Token]) -> Result<(), Refused> {
    if let Some(token) = argument.iter().find(|token| token.is('$')) {
        return Err(refused(token, "asm!: $", HIDDEN));
    }
    let first = &argument[0];
    if matches!(first.kind, Kind::Text(_)) {
        return if argument.len() == 1 { Ok(()) } else { Err(refused(first, "asm!: text", HIDDEN)) };
    }
    let is_named = argument.get(1).is_some_and(|token| token.is('='));
    let kind = argument.get(if is_named { 2 } else { 0 });
    match kind.and_then(Token::word) {
        Some("in" | "out" | "inout" | "lateout" | "inlateout" | "const" | "clobber_abi") => Ok(()),
        Some("options") => options(argument),
        Some(word) => Err(refused(first, format!("asm!: {word}"), MACHINE)),
        None => Err(refused(first, "asm!: an argument", MACHINE)),
    }
}

/// Refuses options that change how a template is read.
fn options(argument: &[Token]) -> Result<(), Refused> {
    let changes =
        |token: &&Token| matches!(token.word(), Some("att_syntax" | "raw" | "noreturn" | "may_unwind"));
    match argument.iter().find(changes) {
        Some(token) => Err(refused(token, format!("asm!: {}", token.word().unwrap_or_default()), MACHINE)),
        None => Ok(()),
    }
}

/// One statement, and the token of its template.
struct Statement<'a> {
    token: &'a Token,
    text: String,
}

/// Reads all templates of one `asm!`.
fn block(templates: &[(&Token, &str)]) -> Result<(), Refused> {
    let mut statements = Vec::new();
    for (token, text) in templates {
        let read = template(text).map_err(|what| refused(token, format!("asm!: {what}"), MACHINE))?;
        statements.extend(read.into_iter().map(|text| Statement { token, text }));
    }
    let mut labels = Vec::new();
    for statement in &mut statements {
        statement.take_labels(&mut labels)?;
    }
    statements.iter().try_for_each(|statement| statement.check(&labels))
}

/// The statements of a template, in lower case, without comments and with [`PLACEHOLDER`] for each operand.
fn template(text: &str) -> Result<Vec<String>, String> {
    let plain = placeholders(&unescaped(text)?)?;
    if plain.contains("/*") {
        return Err("/*".into());
    }
    let lines = plain.lines().map(|line| line.split("//").next().unwrap_or_default());
    let statements = lines.flat_map(|line| line.split(';')).map(|text| text.trim().to_lowercase());
    Ok(statements.filter(|text| !text.is_empty()).collect())
}

/// The text of a string literal. All escapes except line ends and tabs are refused, because they hide instructions.
fn unescaped(text: &str) -> Result<String, String> {
    let mut plain = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => plain.push('\n'),
                Some('t') => plain.push(' '),
                Some('\n') => while chars.next_if(|c| c.is_whitespace()).is_some() {},
                escaped => return Err(format!("\\{}", escaped.unwrap_or_default())),
            },
            '\n' | '\t' | ' '..='~' if c != PLACEHOLDER => plain.push(c),
            _ => return Err(format!("{c:?}")),
        }
    }
    Ok(plain)
}

/// A text with [`PLACEHOLDER`] for `{...}`, and single braces for doubled ones.
fn placeholders(text: &str) -> Result<String, String> {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        plain.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        if rest[at + 1..].starts_with(brace) {
            plain.push_str(brace);
            rest = &rest[at + 2..];
            continue;
        }
        let end = rest[at..].find('}').filter(|_| brace == "{").ok_or("a brace")?;
        plain.push(PLACEHOLDER);
        rest = &rest[at + end + 1..];
    }
    plain.push_str(rest);
    Ok(plain)
}

impl Statement<'_> {
    fn refuse(&self, what: &str) -> Refused {
        refused(self.token, format!("asm!: {what}"), MACHINE)
    }

    /// Removes the labels in front, which must be numbers: a name would be a symbol of the program.
    fn take_labels(&mut self, labels: &mut Vec<String>) -> Result<(), Refused> {
        while let Some((label, rest)) = self.text.split_once(':') {
            let label = label.trim();
            if !is_number(label) {
                return Err(self.refuse(&format!("{label}:")));
            }
            labels.push(label.to_owned());
            self.text = rest.trim().to_owned();
        }
        Ok(())
    }

    /// Refuses a statement that is not an instruction of the lists with registers, numbers and placeholders.
    fn check(&self, labels: &[String]) -> Result<(), Refused> {
        let mut rest = self.text.as_str();
        let mut name = first_word(rest);
        while PREFIXES.contains(&name) {
            rest = rest[name.len()..].trim_start();
            name = first_word(rest);
        }
        if rest.is_empty() && name.is_empty() && self.text.is_empty() {
            return Ok(()); // a label alone
        }
        let mut operands = rest[name.len()..].trim();
        if listed(JUMPS, name) {
            operands = self.without_label(operands, labels)?;
        } else if !(listed(X86, name) || listed(AARCH64, name)) {
            return Err(self.refuse(if name.starts_with('.') {
                "a directive"
            } else if name.is_empty() {
                rest
            } else {
                name
            }));
        }
        match operands_fault(operands) {
            Some(what) => Err(self.refuse(&what)),
            None => Ok(()),
        }
    }

    /// The operands of a jump without the last one, which must be a label of this block.
    fn without_label<'a>(&self, operands: &'a str, labels: &[String]) -> Result<&'a str, Refused> {
        let (before, last) = operands.rsplit_once(',').unwrap_or(("", operands));
        let last = last.trim();
        let target = last.strip_suffix(['b', 'f']).filter(|label| labels.iter().any(|own| own == label));
        match target {
            Some(_) => Ok(before),
            None => Err(self.refuse(&self.text)),
        }
    }
}

/// Instructions have letters, digits and dots.
fn first_word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "._".contains(c))).unwrap_or(text.len());
    &text[..end]
}

/// Returns true if a list has a name, or a pattern that it begins with.
fn listed(list: &str, name: &str) -> bool {
    let matches = |entry: &str| match entry.strip_suffix('*') {
        Some(begin) => name.starts_with(begin) && name.bytes().all(|c| c.is_ascii_alphanumeric()),
        None => entry == name,
    };
    !name.is_empty() && list.split_whitespace().any(matches)
}

/// The first thing in operands that is neither a register nor a number, a placeholder, a keyword or punctuation.
fn operands_fault(operands: &str) -> Option<String> {
    let is_in_word = |c: char| c.is_ascii_alphanumeric() || "._".contains(c);
    let mut rest = operands;
    while let Some(first) = rest.chars().next() {
        let word = &rest[..rest.find(|c| !is_in_word(c)).unwrap_or(rest.len())];
        if word.is_empty() {
            let is_immediate =
                |after: &str| after.starts_with(|c: char| c.is_ascii_digit() || "-@".contains(c));
            let is_known = match first {
                '#' => is_immediate(&rest[1..]), // elsewhere `#` begins a comment on x86
                _ => " ,[]+-*{}!/".contains(first) || first == PLACEHOLDER,
            };
            if !is_known {
                return Some(first.to_string());
            }
            rest = &rest[first.len_utf8()..];
            continue;
        }
        if !(is_number(word) || is_register(word) || is_arrangement(word) || listed(KEYWORDS, word)) {
            return Some(word.to_owned());
        }
        rest = &rest[word.len()..];
    }
    None
}

/// Returns true for `12`, `0x1f`, `0b101` and `1.5`.
fn is_number(word: &str) -> bool {
    let of = |digits: &str, radix| !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    word.strip_prefix("0x").is_some_and(|digits| of(digits, 16))
        || word.strip_prefix("0b").is_some_and(|digits| of(digits, 2))
        || of(word, 10)
        || word.split_once('.').is_some_and(|(whole, part)| of(whole, 10) && of(part, 10))
}

/// Returns true for the part of a vector register after its name: `.16b`, `.s`.
fn is_arrangement(word: &str) -> bool {
    let lanes = word.strip_prefix('.').and_then(|word| word.strip_suffix(['b', 'h', 's', 'd', 'q']));
    lanes.is_some_and(|lanes| ["", "1", "2", "4", "8", "16"].contains(&lanes))
}

fn is_register(word: &str) -> bool {
    let end = word.find('.').unwrap_or(word.len());
    let (name, after) = word.split_at(end);
    let name_is_known = listed(NAMED, name) || numbered(name);
    name_is_known && (after.is_empty() || is_arrangement(after))
}

/// Returns true for `xmm15`, `r8d`, `x28`, `b7`.
fn numbered(name: &str) -> bool {
    NUMBERED.iter().any(|(begin, most)| {
        let number = name.strip_prefix(begin).map(|number| match *begin {
            "r" => number.strip_suffix(['d', 'w', 'b']).unwrap_or(number),
            _ => number,
        });
        number.is_some_and(|number| is_decimal_up_to(number, *most))
    })
}

fn is_decimal_up_to(number: &str, most: u32) -> bool {
    number.bytes().all(|c| c.is_ascii_digit()) && number.parse::<u32>().is_ok_and(|number| number <= most)
}
