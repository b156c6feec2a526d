// Curves as SVG: one line for each run, its last value at its end, and the values under the pointer.

const WIDTH = 360, HEIGHT = 210, LEFT = 44, RIGHT = 52, TOP = 8, BOTTOM = 22

export function svg(name, attributes = {}, text) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name)
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value)
  if (text !== undefined) element.textContent = text
  return element
}

export function short(value) {
  const size = Math.abs(value)
  if (size !== 0 && (size < 0.001 || size >= 100000)) return value.toExponential(1)
  return size >= 10 ? value.toFixed(1) : size >= 0.1 ? value.toFixed(2) : value.toFixed(4)
}

function ticks(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map(factor => factor * power).find(size => size >= rough)
  const found = []
  for (let number = Math.ceil(low / step); number * step <= high * (1 + 1e-9); number++) found.push(number * step)
  return found
}

// Heights in order, moved as far as lines of text need, all of them beside the plot; of very many, the lines are narrower.
function apart(heights) {
  const most = HEIGHT - BOTTOM, line = Math.min(13, (most - TOP) / Math.max(1, heights.length - 1))
  const moved = []
  for (const height of heights) moved.push(Math.max(height, (moved.at(-1) ?? -Infinity) + line))
  for (let place = moved.length - 1, limit = most; place >= 0; place--, limit -= line) moved[place] = Math.min(moved[place], limit)
  return moved
}

const label = value => value >= 1e4 ? `${value / 1000}k` : String(+value.toPrecision(3))

// lines: [{x, y, colour}], with at least one point each; last: where the axis ends
export function draw(title, lines, last) {
  const figure = document.createElement('figure')
  figure.append(Object.assign(document.createElement('h3'), {textContent: title}))
  const top = Math.max(...lines.flatMap(line => line.y), 1e-9) * 1.06
  const bottom = Math.min(0, ...lines.flatMap(line => line.y))
  const across = x => LEFT + x / last * (WIDTH - LEFT - RIGHT)
  const up = y => HEIGHT - BOTTOM - (y - bottom) / (top - bottom) * (HEIGHT - TOP - BOTTOM)
  const root = svg('svg', {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': title})
  for (const y of ticks(bottom, top, 4)) {
    root.append(svg('line', {class: 'grid', x1: LEFT, x2: WIDTH - RIGHT, y1: up(y), y2: up(y)}))
    root.append(svg('text', {x: LEFT - 6, y: up(y) + 4, 'text-anchor': 'end'}, label(y)))
  }
  for (const x of ticks(0, last, 4)) {
    root.append(svg('text', {x: across(x), y: HEIGHT - 4, 'text-anchor': 'middle'}, label(x)))
  }
  for (const line of lines) {
    const path = line.x.map((x, place) => `${place ? 'L' : 'M'}${across(x).toFixed(1)} ${up(line.y[place]).toFixed(1)}`)
    root.append(svg('path', {class: 'line', d: path.join(''), stroke: line.colour}))
    root.append(svg('circle', {cx: across(line.x.at(-1)), cy: up(line.y.at(-1)), r: 3.2, fill: line.colour}))
  }
  const ends = lines.map(line => [up(line.y.at(-1)), short(line.y.at(-1)), line.colour]).sort((a, b) => a[0] - b[0])
  for (const [place, y] of apart(ends.map(end => end[0])).entries()) {
    const end = svg('text', {class: 'end', x: WIDTH - RIGHT + 7, y: y + 4}, ends[place][1])
    end.style.fill = ends[place][2]
    root.append(end)
  }
  point(root, lines, across, up, last)
  figure.append(root)
  return figure
}

function point(root, lines, across, up, last) {
  const shown = svg('g', {visibility: 'hidden'})
  root.append(shown)
  root.addEventListener('pointerleave', () => shown.setAttribute('visibility', 'hidden'))
  root.addEventListener('pointermove', event => {
    const box = root.getBoundingClientRect()
    const x = ((event.clientX - box.left) / box.width * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT) * last
    const nearest = lines.map(line => {
      const distances = line.x.map(each => Math.abs(each - x))
      return distances.indexOf(Math.min(...distances))
    })
    const at = lines[0].x[nearest[0]]
    const right = across(at) > WIDTH / 2
    const anchor = {x: across(at) + (right ? -6 : 6), 'text-anchor': right ? 'end' : 'start'}
    shown.replaceChildren(
      svg('line', {class: 'cross', x1: across(at), x2: across(at), y1: TOP, y2: HEIGHT - BOTTOM}),
      svg('text', {...anchor, y: TOP + 10}, `iteration ${Math.round(at).toLocaleString('en')}`),
      ...lines.flatMap((line, place) => {
        const value = svg('text', {...anchor, y: TOP + 24 + 13 * place, class: 'end'}, short(line.y[nearest[place]]))
        value.style.fill = line.colour
        return [value, svg('circle', {cx: across(line.x[nearest[place]]), cy: up(line.y[nearest[place]]), r: 3.2, fill: line.colour})]
      }))
    shown.setAttribute('visibility', 'visible')
  })
}
