"""Colours and sizes of the pictures: the Okabe-Ito palette, safe for colour-blind readers.

Every colour has a counterpart for dark pages. A picture is drawn once, in the light ones; its dark variant is the same
SVG with each colour exchanged, so no two light colours may be equal.
"""

INK, MUTED, GRID, PAGE = "#1f2430", "#5f6675", "#d9dce3", "#ffffff"
SERVER, CLIENT, STALL = "#0072b2", "#6b7280", "#d55e00"
ROW, END = "#00805c", "#a8468a"
FLIGHTS = ("#e6f1f8", "#f1f2f5")
SILENCE = "#fbe3d0"
BEFORE, AFTER = "#d45d00", "#0073b3"
FONT = 9.0
WIDTH = 9.0  # inches
DPI = 144

DARK = {
    INK: "#e6e8ee",
    MUTED: "#a3aab8",
    GRID: "#454b58",
    PAGE: "#14161b",
    SERVER: "#56b4e9",
    CLIENT: "#9aa2b1",
    STALL: "#ff9d5c",
    ROW: "#4fd1a5",
    END: "#e29bcb",
    FLIGHTS[0]: "#1b2b39",
    FLIGHTS[1]: "#22252d",
    SILENCE: "#4a2c18",
    BEFORE: "#fe9c5b",
    AFTER: "#55b3e8",
}
