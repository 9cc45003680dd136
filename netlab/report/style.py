"""Colours and sizes of the pictures: the Okabe-Ito palette, safe for colour-blind readers."""

INK, MUTED, GRID = "#1f2430", "#5f6675", "#d9dce3"
SERVER, CLIENT, STALL = "#0072b2", "#6b7280", "#d55e00"
ROW, END = "#009e73", "#cc79a7"
FLIGHTS = ("#e6f1f8", "#fdf0e2", "#e8f6f0", "#f7ecf4")
BEFORE, AFTER = "#d55e00", "#0072b2"
FONT = 9
