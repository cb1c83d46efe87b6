// The windows of a live sound as bars over time: the height is the best score, the colour its class.
import {brief, colourOf} from './drawing.js';

const WINDOWS = 60, HEIGHT = 220, LABEL = 28, MARGIN = 24;

// Draw the last windows, oldest first, into a canvas of a width in CSS pixels.
export function drawTimeline(canvas, windows, width) {
  const ratio = devicePixelRatio || 1, context = canvas.getContext('2d'), shown = windows.slice(-WINDOWS);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(HEIGHT * ratio);
  context.scale(ratio, ratio);
  const {color} = getComputedStyle(canvas), last = shown[shown.length - 1], [best] = last.items;
  const top = MARGIN + LABEL, bottom = HEIGHT - MARGIN, step = (width - 2 * MARGIN) / WINDOWS;
  const text = (words, size, x, y, align) => {
    context.font = `${size > 14 ? 600 : 400} ${size}px system-ui, "DejaVu Sans", sans-serif`;
    context.textAlign = align;
    context.fillStyle = color;
    context.fillText(words, x, y, width - 2 * MARGIN);
  };
  text(`${brief(best.label)} ${best.score.toFixed(2)}`, 22, MARGIN, MARGIN + 8, 'left');
  context.strokeStyle = color;
  for (const score of [0, 0.5, 1]) {
    context.globalAlpha = 0.25;
    const y = bottom - score * (bottom - top);
    context.beginPath();
    context.moveTo(MARGIN, y);
    context.lineTo(width - MARGIN, y);
    context.stroke();
  }
  context.globalAlpha = 1;
  shown.forEach(({items: [{index, score}]}, i) => {
    const high = Math.max(1, Math.min(1, Math.max(0, score)) * (bottom - top));
    context.fillStyle = colourOf(index);
    context.fillRect(MARGIN + i * step, bottom - high, Math.max(1, step - 1), high);
  });
  text(`${shown[0].start_s.toFixed(1)} s`, 13, MARGIN, HEIGHT - 7, 'left');
  if (shown.length > WINDOWS / 4) text(`${last.end_s.toFixed(1)} s`, 13, MARGIN + shown.length * step, HEIGHT - 7, 'right');
}
