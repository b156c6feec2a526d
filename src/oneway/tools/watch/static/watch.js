// Asks every few seconds which runs have changed, and draws those that are chosen.
import {draw} from './plot.js'

const SECONDS = 2, COLOURS = 6
const find = id => document.getElementById(id)
const details = new Map() // by number of the run
const chosen = new Map() // number → whether it is drawn; the latest runs are, until somebody chooses
let runs = [], drawn = '', time = null // null: the latest pictures

const make = (name, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(name), properties)
  element.append(...children)
  return element
}
const colour = number => `var(--run-${(shown().findIndex(run => run.number === number) + 1) % COLOURS})`
const shown = () => runs.filter(run => chosen.get(run.number)).sort((a, b) => a.number - b.number)
const count = number => number.toLocaleString('en')
const duration = seconds => {
  const minutes = Math.round(seconds / 60)
  return seconds < 90 ? `${Math.round(seconds)} s` : minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`
}

async function ask(address) {
  const answer = await fetch(address)
  const found = await answer.json()
  if (!answer.ok) throw new Error(found.error)
  return found
}

async function look() {
  try {
    const found = await ask('api/runs')
    runs = found.runs
    for (const [place, run] of runs.entries()) if (!chosen.has(run.number)) chosen.set(run.number, place < COLOURS && shown().length < COLOURS)
    for (const run of shown()) {
      if (details.get(run.number)?.version !== run.version) details.set(run.number, await ask(`api/runs/${run.number}`))
    }
    find('notice').hidden = true
    list(found.folder)
    const now = JSON.stringify(shown().map(run => [run.number, run.version]))
    if (now !== drawn) {
      drawn = now
      curves()
      classes()
      pictures()
    }
    document.documentElement.dataset.looked = Number(document.documentElement.dataset.looked ?? 0) + 1
  } catch (error) {
    find('notice').textContent = error instanceof TypeError ? 'oneway watch has ended. The page stays as it was.' : error.message
    find('notice').hidden = false
  }
}

function list(folder) {
  const name = folder.split('/').filter(part => part && part !== '.').at(-1) ?? folder
  find('folder').textContent = runs.length === 1 && runs[0].name === name ? name : folder
  document.title = `${runs.some(run => run.state === 'training') ? '▶ ' : ''}${name} · oneway watch`
  const [first, ...rest] = shown().filter(run => run.value !== null)
  const others = new Set(rest.filter(run => details.get(run.number).validation !== details.get(first.number).validation))
  find('runs').replaceChildren(...runs.map(run => {
    const box = make('input', {type: 'checkbox', checked: chosen.get(run.number)})
    box.addEventListener('change', () => { chosen.set(run.number, box.checked); look() })
    const left = run.left === null ? '' : ` · about ${duration(run.left)} left`
    const of = run.iterations === null ? '' : ` of ${count(run.iterations)}` // of a run that cannot be read
    const facts = run.method === null ? '' : `${run.method} · ${count(run.labels)} ${run.labels === 1 ? 'label' : 'labels'} · seed ${run.seed} · `
    const entry = make('label', {}, box, make('span', {className: 'name', textContent: run.name}),
      make('span', {className: 'value', textContent: run.value === null ? '' : `${run.value.toFixed(1)} % ${run.metric}`}),
      make('progress', {max: run.iterations ?? 1, value: run.done ?? 0}),
      make('span', {className: 'facts', textContent: `${facts}${run.state}, ${count(run.done ?? 0)}${of} iterations${left}`}))
    if (others.has(run)) entry.append(make('span', {className: 'facts', textContent: `validated by other images than ${first.name}`}))
    if (run.problem) entry.append(make('span', {className: 'facts problem', textContent: run.problem}))
    if (chosen.get(run.number)) entry.style.setProperty('--c', colour(run.number))
    return make('li', {}, entry)
  }))
}

function curves() {
  const titles = new Map(shown().flatMap(run => (details.get(run.number).curves ?? []).map(curve => [curve.key, curve.title])))
  const figures = []
  for (const [key, title] of titles) {
    const lines = shown().flatMap(run => {
      const curve = (details.get(run.number).curves ?? []).find(each => each.key === key)
      return curve?.x.length ? [{...curve, colour: colour(run.number)}] : []
    })
    if (lines.length) figures.push(draw(title, lines, Math.max(1, ...shown().map(run => details.get(run.number).done ?? 0))))
  }
  find('curves').replaceChildren(...figures)
}

function classes() {
  const measured = shown().filter(run => details.get(run.number).per_class?.length)
  find('classes').hidden = !measured.length
  if (!measured.length) return
  const groups = new Map() // runs with the same classes: those of one data set mean nothing to another
  for (const run of measured) {
    const key = JSON.stringify(details.get(run.number).per_class.map(each => each.name))
    groups.set(key, [...groups.get(key) ?? [], run])
  }
  find('groups').replaceChildren(...[...groups.values()].flatMap(group => {
    const of = groups.size > 1 ? ` · ${group.map(run => run.name).join(', ')}` : ''
    return [make('p', {className: 'hint', textContent: `${details.get(group[0].number).measured} at the last validation, %${of}`}),
      make('div', {className: 'bars'}, ...bars(group))]
  }))
}

function bars(group) {
  return details.get(group[0].number).per_class.flatMap(({name}, place) => {
    const values = group.map(run => {
      const {value} = details.get(run.number).per_class[place]
      const bar = make('i')
      bar.style.setProperty('--share', (value ?? 0) / 100)
      bar.style.setProperty('--c', colour(run.number))
      return make('div', {className: 'bar'}, bar, make('span', {textContent: value === null ? '–' : value.toFixed(1)}))
    })
    return [make('span', {className: 'name', textContent: name}), make('div', {}, ...values)]
  })
}

// The runs with pictures, beside the first those that are validated by the same images; and when there are some.
function pictured() {
  const some = shown().filter(run => details.get(run.number).pictures?.iterations.length)
  const same = some.filter(run => details.get(run.number).validation === details.get(some[0].number).validation)
  const times = new Set(same.flatMap(run => details.get(run.number).pictures.iterations))
  return {same, times: [...times].sort((a, b) => a - b)}
}

function pictures() {
  const {same, times} = pictured()
  find('pictures').hidden = !same.length
  if (!same.length) return
  const first = details.get(same[0].number)
  const place = time === null ? times.length - 1 : Math.max(0, times.findLastIndex(each => each <= time))
  find('time').max = times.length - 1
  find('time').value = place
  find('time').hidden = times.length < 2
  find('after').textContent = count(times[place])
  find('legend').replaceChildren(...first.legend.map(({name, colour}) => {
    const swatch = make('span', {className: 'swatch'})
    swatch.style.setProperty('--c', colour)
    return make('li', {}, swatch, name)
  }))
  const cells = []
  for (let scene = 1; scene <= first.pictures.scenes; scene++) {
    const cell = (run, file, caption) => make('figure', {},
      make('img', {src: `api/runs/${run.number}/pictures/${file}`, alt: caption, loading: 'lazy'}), make('figcaption', {textContent: caption}))
    cells.push(cell(same[0], `image-${scene}.jpg`, 'image'), cell(same[0], `truth-${scene}.png`, 'labels'))
    cells.at(-2).classList.toggle('odd', same.length % 2 === 1) // in two columns, it has a row of its own
    for (const run of same) {
      const had = details.get(run.number).pictures.iterations.filter(each => each <= times[place])
      if (!had.length) { cells.push(make('figure')); continue }
      const name = `${String(had.at(-1)).padStart(8, '0')}-${scene}.png`
      const when = had.at(-1) === times[place] ? '' : `, after ${count(had.at(-1))}`
      cells.push(cell(run, name, `${same.length > 1 ? run.name : 'prediction'}${when}`))
    }
  }
  find('gallery').style.setProperty('--columns', 2 + same.length)
  find('gallery').replaceChildren(...cells)
}

find('time').addEventListener('input', () => {
  const {times} = pictured()
  const place = Number(find('time').value)
  time = place === times.length - 1 ? null : times[place]
  pictures()
})

async function forever() {
  await look()
  setTimeout(forever, 1000 * SECONDS * (document.hidden ? 5 : 1))
}
document.addEventListener('visibilitychange', () => document.hidden || look())
forever()
