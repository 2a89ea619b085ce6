// Package svg draws the pictures of the documentation.
package svg

import (
	"fmt"
	"math"
	"os"
	"strings"
)

// The colours are readable on the background that each picture brings along, whatever the page has.
const (
	Paper = "#ffffff"
	Ink   = "#24292f"
	Faint = "#6e7781"
	Grid  = "#d8dee4"
	Blue  = "#0969da"
	Green = "#1a7f37"
	Red   = "#cf222e"
	Pale  = "#ddf4ff"
	Mint  = "#dafbe1"
)

// Canvas is a picture under way, on a background of its own.
type Canvas struct {
	b             strings.Builder
	width, height float64
}

// New returns a picture of a size, in pixels.
func New(width, height float64, title string) *Canvas {
	c := &Canvas{width: width, height: height}
	fmt.Fprintf(&c.b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" font-family="Liberation Sans,Arial,Helvetica,sans-serif" font-size="13">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&c.b, "<title>%s</title>\n", escape(title))
	c.Rect(0.5, 0.5, width-1, height-1, Paper, Grid)
	return c
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// Rect draws a box.
func (c *Canvas) Rect(x, y, w, h float64, fill, stroke string) {
	fmt.Fprintf(&c.b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="4" fill="%s" stroke="%s"/>`+"\n", x, y, w, h, fill, stroke)
}

// Line draws a line; dash is as in stroke-dasharray, "" for none.
func (c *Canvas) Line(x1, y1, x2, y2 float64, stroke string, width float64, dash string) {
	fmt.Fprintf(&c.b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%g" stroke-dasharray="%s"/>`+"\n", x1, y1, x2, y2, stroke, width, dash)
}

// Arrow draws an arrow down or up to y2.
func (c *Canvas) Arrow(x, y1, y2 float64, stroke string) {
	back := math.Copysign(8, y1-y2)
	c.Line(x, y1, x, y2+back*5/8, stroke, 2, "")
	fmt.Fprintf(&c.b, `<path d="M%.1f %.1f l-5 %g h10 z" fill="%s"/>`+"\n", x, y2, back, stroke)
}

// Dot draws a point.
func (c *Canvas) Dot(x, y float64, fill string) {
	fmt.Fprintf(&c.b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`+"\n", x, y, fill)
}

// Text writes a text, with an edge of the background's colour around it, so that it can be read on
// lines; where is start, middle or end.
func (c *Canvas) Text(x, y float64, where, fill, weight, text string) {
	fmt.Fprintf(&c.b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s" font-weight="%s" stroke="%s" stroke-width="3" paint-order="stroke">%s</text>`+"\n",
		x, y, where, fill, weight, Paper, escape(text))
}

// Code writes a line as a terminal shows it.
func (c *Canvas) Code(x, y float64, fill, text string) {
	fmt.Fprintf(&c.b, `<text x="%.1f" y="%.1f" fill="%s" font-family="Liberation Mono,Menlo,Consolas,monospace" font-size="12" xml:space="preserve">%s</text>`+"\n",
		x, y, fill, escape(text))
}

// Path draws a line through points.
func (c *Canvas) Path(points [][2]float64, stroke string) {
	var d strings.Builder
	for i, p := range points {
		fmt.Fprintf(&d, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[i == 0], p[0], p[1])
	}
	fmt.Fprintf(&c.b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", d.String(), stroke)
}

// WriteFile writes the picture to a file.
func (c *Canvas) WriteFile(name string) error {
	return os.WriteFile(name, []byte(c.b.String()+"</svg>\n"), 0o644)
}
