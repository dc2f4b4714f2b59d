"""A terminal in memory and its picture: enough of the escape sequences for what bitnet, a shell and tmux print, and an SVG of
the result. A cell remembers when it was written last, so that the picture can be played; a program that shows pictures
without motion shows the last screen. tools/record_terminal records with it, tests/first_hour draws its screens with it."""
import html
import re
import unicodedata

CELL_W, CELL_H, FONT = 8.4, 19, 14
PAD, BAR = 14, 30
# background, window bar, border, text; then the eight colours and their bright forms, readable on that background
BACK, TOP, EDGE, TEXT = "#11161d", "#1c232d", "#3a4654", "#dbe2ea"
COLOURS = ("#5c6773 #f28779 #a6cc70 #f2c94c #73b8ff #d4a6ff #7fd9cf #dbe2ea "
           "#8a96a3 #ff9d8f #bfe08a #ffdd77 #9bceff #e3c4ff #a5ece4 #ffffff").split()
SEQUENCE = re.compile(r"\x1b\[([0-9;:?<>=!]*)([ -/]*[@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[ -~]")
PART = re.compile(r"\x1b(\[[0-9;:?<>=! -/]*|\][^\x07\x1b]*\x1b?|[()])?\Z")
PLAIN = (None, None, "")  # foreground, background, letters of "bold dim italic underline reverse"


def width_of(char):
    if unicodedata.combining(char) or unicodedata.category(char) in ("Cf", "Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


class Screen:
    """Rows of cells [character, style, time]; lines that scroll out are kept in `gone`."""

    def __init__(self, columns, rows):
        self.columns, self.n_rows = columns, rows
        self.rows = [self.blank() for _ in range(rows)]
        self.gone = []
        self.row = self.column = 0
        self.style, self.wrap, self.saved = PLAIN, False, (0, 0)
        self.answers = []  # what the terminal says when it is asked where the cursor is
        self.left = ""     # a sequence that is not whole

    def blank(self):
        return [[" ", PLAIN, None] for _ in range(self.columns)]

    def text(self):
        return ["".join(c[0] for c in row).rstrip() for row in self.rows]

    # ---- what arrives ----
    def feed(self, data, clock=lambda char: None):
        """Shows the text; clock(char) tells the time of each printed character."""
        data, self.left = self.left + data, ""
        part = PART.search(data)
        if part:
            data, self.left = data[:part.start()], part.group()
        at = 0
        while at < len(data):
            m = SEQUENCE.match(data, at) if data[at] == "\x1b" else None
            if m:
                self.control(m)
                at = m.end()
            else:
                self.put(data[at], clock)
                at += 1

    def put(self, char, clock):
        if char == "\n":
            self.line_feed()
        elif char == "\r":
            self.column, self.wrap = 0, False
        elif char == "\b":
            self.column, self.wrap = max(0, self.column - 1), False
        elif char == "\t":
            self.column = min(self.columns - 1, self.column // 8 * 8 + 8)
        elif char >= " " and char != "\x7f":
            self.show(char, clock(char))

    def show(self, char, when):
        width = width_of(char)
        if width == 0:
            cell = self.rows[self.row][max(0, self.column - 1)]
            cell[0] += char
            return
        if self.wrap or self.column + width > self.columns:
            self.column, self.wrap = 0, False
            self.line_feed()
        row = self.rows[self.row]
        old = row[self.column]
        if old[:2] != [char, self.style] or old[2] is None:  # what is drawn again as it was keeps its time
            row[self.column] = [char, self.style, when]
        if width == 2:
            row[self.column + 1] = ["", self.style, when]
        self.wrap = self.column + width >= self.columns
        self.column = min(self.columns - 1, self.column + width)

    def line_feed(self):
        if self.row + 1 < self.n_rows:
            self.row += 1
        else:
            self.gone.append(self.rows.pop(0))
            self.rows.append(self.blank())

    # ---- sequences ----
    def control(self, m):
        if m.group(2) is None:
            if m.group() == "\x1b7":
                self.saved = (self.row, self.column)
            elif m.group() == "\x1b8":
                self.row, self.column = self.saved
            return
        numbers = [int(n) if n.isdigit() else 0 for n in m.group(1).strip("?<>=!").replace(":", ";").split(";")]
        first, kind = numbers[0], m.group(2)
        if kind == "m" and m.group(1)[:1] not in ("?", ">", "<"):
            self.paint(numbers)
        elif kind == "n" and first == 6:
            self.answers.append(f"\x1b[{self.row + 1};{self.column + 1}R")
        elif kind in "JKPX@LM":
            self.erase(kind, first)
        elif kind in "ABCDEFGHfdsu":
            self.move(kind, first, numbers)

    def move(self, kind, first, numbers):
        n = max(1, first)
        row, column = self.row, self.column
        if kind in "Hf":
            row, column = n - 1, max(1, (numbers + [1])[1]) - 1
        elif kind == "s":
            self.saved = (row, column)
        elif kind == "u":
            row, column = self.saved
        else:
            row += {"A": -n, "F": -n, "B": n, "E": n}.get(kind, 0) if kind != "d" else n - 1 - row
            column += {"D": -n, "C": n}.get(kind, 0) if kind not in "GEF" else (n - 1 if kind == "G" else 0) - column
        self.row, self.wrap = min(max(row, 0), self.n_rows - 1), False
        self.column = min(max(column, 0), self.columns - 1)

    def erase(self, kind, first):
        row, n, here = self.rows[self.row], max(1, first), self.column
        blank = self.blank()
        if kind == "K":
            a, b = ((here, self.columns), (0, here + 1), (0, self.columns))[min(first, 2)]
            row[a:b] = blank[a:b]
        elif kind == "X":
            row[here:here + n] = blank[here:here + n]
        elif kind == "P":
            self.rows[self.row] = (row[:here] + row[here + n:] + blank)[:self.columns]
        elif kind == "@":
            self.rows[self.row] = (row[:here] + blank[:n] + row[here:])[:self.columns]
        elif kind == "L":
            self.rows = (self.rows[:self.row] + [self.blank() for _ in range(n)] + self.rows[self.row:])[:self.n_rows]
        elif kind == "M":
            rest = self.rows[self.row + n:]
            self.rows[self.row:] = rest + [self.blank() for _ in range(self.n_rows - self.row - len(rest))]
        else:  # J: to the end, from the start, all
            self.erase("K", first)
            rows = {0: range(self.row + 1, self.n_rows), 1: range(self.row)}.get(first, range(self.n_rows))
            for i in rows:
                self.rows[i] = self.blank()

    def paint(self, numbers):
        front, back, marks = self.style
        numbers = list(numbers)
        while numbers:
            n = numbers.pop(0)
            if n == 0:
                front, back, marks = PLAIN
            elif n in (1, 2, 3, 4, 7):
                marks += "" if "bdiu__r"[n - 1] in marks else "bdiu__r"[n - 1]
            elif n in (22, 23, 24, 27):
                drop = {22: "bd", 23: "i", 24: "u", 27: "r"}[n]
                marks = "".join(c for c in marks if c not in drop)
            elif n in (38, 48):
                colour = palette(numbers)
                front, back = (colour, back) if n == 38 else (front, colour)
            elif n in (39, 49):
                front, back = (None, back) if n == 39 else (front, None)
            elif 30 <= n <= 37 or 90 <= n <= 97:
                front = COLOURS[n - 30 if n < 40 else n - 82]
            elif 40 <= n <= 47 or 100 <= n <= 107:
                back = COLOURS[n - 40 if n < 50 else n - 92]
        self.style = (front, back, marks)


def palette(numbers):
    """The colour that follows 38 or 48, taken off the list."""
    kind = numbers.pop(0) if numbers else 0
    if kind == 2:
        rgb = [numbers.pop(0) if numbers else 0 for _ in range(3)]
        return "#%02x%02x%02x" % tuple(min(255, c) for c in rgb)
    n = numbers.pop(0) if numbers else 0
    if n < 16:
        return COLOURS[n]
    if n >= 232:
        return "#" + "%02x" % (8 + 10 * (n - 232)) * 3
    steps = (0, 95, 135, 175, 215, 255)
    n -= 16
    return "#%02x%02x%02x" % (steps[n // 36 % 6], steps[n // 6 % 6], steps[n % 6])


# ---- the picture ----

def number(x):
    return f"{x:.2f}".rstrip("0").rstrip(".")


def runs_of(row):
    """(column, text, style, time) of neighbours that look alike and come at the same time. Blanks at the ends are dropped and
    wide gaps left out, for programs that show several blanks as one; where they have a colour they stay."""
    runs, start = [], 0
    for i in range(1, len(row) + 1):
        if i == len(row) or row[i][1:] != row[start][1:]:
            style, when = row[start][1:]
            painted = style[1] or "r" in style[2] or "u" in style[2]
            pieces = [(start, i)] if painted else words_between(row, start, i)
            runs += [(a, "".join(c[0] for c in row[a:b]), style, when) for a, b in pieces]
            start = i
    return runs


def words_between(row, start, end):
    """Ranges of cells that have no two blanks in a row and none at the ends."""
    text = "".join(c[0][:1] or "\0" for c in row[start:end])  # one character a cell
    return [(start + m.start(), start + m.end()) for m in re.finditer(r"[^ ]+(?: [^ ]+)*", text)]


def look_of(style):
    """(attributes of the text, colour behind it)"""
    front, back, marks = style
    if "r" in marks:
        front, back = back or BACK, front or TEXT
    out = f' fill="{front}"' if front else ""
    for letter, attribute in (("b", 'font-weight="700"'), ("d", 'opacity=".62"'), ("i", 'font-style="italic"'),
                              ("u", 'text-decoration="underline"')):
        out += f" {attribute}" if letter in marks else ""
    return out, back


def draw_run(y, run):
    column, text, style, when = run
    look, back = look_of(style)
    cells = sum(width_of(c) for c in text)
    x, long = number(PAD + column * CELL_W), number(cells * CELL_W)
    late = f' style="animation-delay:{number(when)}s"' if when else ""
    out = ""
    if back:
        out = f'<rect x="{x}" y="{number(y - 14)}" width="{long}" height="{CELL_H}" fill="{back}"{late}/>\n'
    if not text.strip():
        return out
    fit = f' textLength="{long}" lengthAdjust="spacingAndGlyphs"' if cells > 1 else ""
    return out + f'<text x="{x}" y="{number(y)}"{fit}{look}{late}>{html.escape(text, quote=False)}</text>\n'


def cursor_path(moves, end):
    """Keyframes of the cursor: (time, row, column) in order."""
    frames = []
    for when, row, column in [(0, 0, 0), *moves]:
        frame = f"{number(100 * when / end)}%{{transform:translate({number(column * CELL_W)}px,{row * CELL_H}px)}}"
        if not frames or frame.split("{", 1)[1] != frames[-1].split("{", 1)[1]:
            frames.append(frame)
    return "@keyframes c{" + "".join(frames) + "}"


def svg(screen, title, words, moves=(), end=0.0):
    """The picture of a screen: title in its bar, words for people who cannot see it. moves, end: where the cursor was when,
    and when all is over; without them it stands still."""
    used = max([i for i, row in enumerate(screen.text()) if row] + [screen.row]) + 1
    wide, high = number(2 * PAD + screen.columns * CELL_W), number(BAR + 2 * PAD + used * CELL_H)
    style = f"text{{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;" \
            f"font-size:{FONT}px;fill:{TEXT};white-space:pre}}\n"
    cursor = ""
    if moves:
        style += "@keyframes a{from{visibility:hidden}to{visibility:hidden}}\n" + cursor_path(moves, end) + "\n" \
                 ".m>*{animation:a 1ms backwards}\n.m .c{animation:c " + number(end) + "s step-end}\n" \
                 "@media(prefers-reduced-motion:reduce){.m>*,.m .c{animation:none}}\n"
        _, row, column = moves[-1]
        cursor = (f'<rect class="c" x="{PAD}" y="{BAR + PAD}" width="{number(CELL_W)}" height="{CELL_H - 2}" fill="{TEXT}" '
                  f'opacity=".6" style="transform:translate({number(column * CELL_W)}px,{row * CELL_H}px)"/>\n')
    body = "".join(draw_run(BAR + PAD + 14 + i * CELL_H, run)
                   for i, row in enumerate(screen.rows[:used]) for run in runs_of(row))
    dots = "".join(f'<circle cx="{PAD + 4 + 18 * i}" cy="15" r="5" fill="{COLOURS[c]}"/>' for i, c in enumerate((1, 3, 2)))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}" role="img" '
            f'aria-labelledby="t d">\n<title id="t">{html.escape(title)}</title>\n<desc id="d">{html.escape(words)}</desc>\n'
            f"<style>\n{style}</style>\n"
            f'<rect x=".5" y=".5" width="{number(float(wide) - 1)}" height="{number(float(high) - 1)}" rx="9" fill="{BACK}" '
            f'stroke="{EDGE}"/>\n'
            f'<path d="M1 {BAR}V9.5a8.5 8.5 0 0 1 8.5-8.5H{number(float(wide) - 9.5)}a8.5 8.5 0 0 1 8.5 8.5V{BAR}z" '
            f'fill="{TOP}"/>\n{dots}\n'
            f'<text x="{number(float(wide) / 2)}" y="20" text-anchor="middle" opacity=".75">{html.escape(title, quote=False)}'
            f'</text>\n<g class="m">\n{body}{cursor}</g>\n</svg>\n')


def text_of(picture):
    """The rows of text in a picture that svg() drew, as the screen had them."""
    rows = {}
    inner = picture.split('<g class="m">', 1)[1]
    for x, y, text in re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', inner):
        column, row = round((float(x) - PAD) / CELL_W), round((float(y) - BAR - PAD - 14) / CELL_H)
        line = rows.get(row, "")
        rows[row] = line.ljust(column) + html.unescape(text)
    return [rows.get(i, "").rstrip() for i in range(max(rows, default=-1) + 1)]
