"""Text from peers and files, made safe to show.

SQL, server messages and file names may hold terminal escapes, bidirectional overrides and line breaks: none of them may
move a terminal's cursor or reorder a line.
"""

import unicodedata

_LONGEST = 2_000
# Cc controls, Cf format characters (bidi overrides, zero-width), Cs surrogates, Zl and Zp separators.
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def plain(text: str, *, longest: int = _LONGEST) -> str:
    """Return `text` on one line, with every invisible or controlling character spelt as \\xNN or \\uNNNN.

    Line breaks and tabs become spaces; beyond `longest` characters it is cut with an ellipsis.
    """
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join(_visible(character) for character in cut)


def _visible(character: str) -> str:
    if character in "\n\r\t":
        return " "
    if unicodedata.category(character) in _HIDDEN:
        code = ord(character)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return character
