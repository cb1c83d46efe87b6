// Boxes on a canvas, and the list of what was found. Labels are a stranger's: they become text, never markup.
const ITEM_LIMIT = 300, ROW_LIMIT = 20, NAME_CHARACTERS = 60;
const COLOURS = ['#e4572e', '#2e86ab', '#3b8f3f', '#9b5de5', '#c9780c', '#d6336c', '#0b8a83', '#5c6bc0'];

export const brief = (text) => (text.length > NAME_CHARACTERS ? `${text.slice(0, NAME_CHARACTERS)}…` : text);
export const ms = (value) => `${value < 10 ? value.toFixed(1) : value.toFixed(0)} ms`;
export const decibels = (db) => (db === Infinity ? 'equal' : `${db.toFixed(1)} dB`);

// Return an element with a text.
export function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

// Return the colour of a class that is the same in every prediction.
export const colourOf = (index) => COLOURS[index % COLOURS.length];

const coloured = (items) => {  // a colour for each class, in the order in which they were found
  const classes = [...new Set(items.map(({index}) => index))];
  return (index) => COLOURS[classes.indexOf(index) % COLOURS.length];
};

// Draw an object's boxes with names; scale: pixels of the canvas for one of the picture.
export function drawItems(canvas, {kind, items}, scale) {
  const context = canvas.getContext('2d'), size = Math.max(12, Math.round(canvas.width / 40)), colours = coloured(items);
  context.font = `600 ${size}px system-ui, "DejaVu Sans", sans-serif`;
  context.textBaseline = 'top';
  context.lineWidth = Math.max(2, size / 8);
  for (const {index, label, score, box} of kind === 'detect' ? items.slice(0, ITEM_LIMIT).reverse() : []) {
    const [x1, y1, x2, y2] = box.map((value) => value * scale), text = `${brief(label)} ${score.toFixed(2)}`;
    context.strokeStyle = context.fillStyle = colours(index);
    context.strokeRect(x1, y1, x2 - x1, y2 - y1);
    const wide = context.measureText(text).width + size * 0.6, high = size * 1.35;
    const left = Math.max(0, Math.min(x1, canvas.width - wide)), top = y1 - high >= 0 ? y1 - high : Math.max(0, y1);
    context.fillRect(left, top, wide, high);
    context.fillStyle = '#ffffff';
    context.fillText(text, left + size * 0.3, top + size * 0.18);
  }
}

// Return what was found in words.
export function named(items) {
  return items.slice(0, ROW_LIMIT).map(({label}) => brief(label)).join(', ') || 'nothing';
}

// Return rows of a table, and how many items they leave out. colours: of a class's index; default: a detector's.
export function rowsOf({kind, items}, colours = kind === 'detect' ? coloured(items) : null) {
  const rows = items.slice(0, ROW_LIMIT).map(({index, label, score}) => {
    const row = document.createElement('tr'), name = document.createElement('td');
    if (colours) {
      const swatch = element('span', 'swatch', '');
      swatch.style.backgroundColor = colours(index);
      name.append(swatch);
    }
    name.append(element('bdi', '', brief(label)));
    row.append(name, element('td', 'number', score.toFixed(3)));
    return row;
  });
  return {rows, left: Math.max(0, items.length - ROW_LIMIT)};
}
