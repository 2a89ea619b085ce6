//go:build unix

package main

import (
	"fmt"
	"os"
	"strings"
)

// The colours are readable on the background that each picture brings along, whatever the page has.
const (
	paper = "#ffffff"
	ink   = "#24292f"
	faint = "#8c959f"
	grid  = "#d8dee4"
	blue  = "#0969da"
	green = "#1a7f37"
	red   = "#cf222e"
	pale  = "#ddf4ff"
	mint  = "#dafbe1"
)

// canvas is a picture under way, in SVG.
type canvas struct {
	b             strings.Builder
	width, height float64
}

func newCanvas(width, height float64, title string) *canvas {
	c := &canvas{width: width, height: height}
	fmt.Fprintf(&c.b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" font-family="Liberation Sans,Arial,Helvetica,sans-serif" font-size="13">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&c.b, "<title>%s</title>\n", escape(title))
	c.rect(0.5, 0.5, width-1, height-1, paper, grid)
	return c
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

func (c *canvas) rect(x, y, w, h float64, fill, stroke string) {
	fmt.Fprintf(&c.b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="4" fill="%s" stroke="%s"/>`+"\n", x, y, w, h, fill, stroke)
}

func (c *canvas) line(x1, y1, x2, y2 float64, stroke string, width float64, dash string) {
	fmt.Fprintf(&c.b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%g" stroke-dasharray="%s"/>`+"\n", x1, y1, x2, y2, stroke, width, dash)
}

func (c *canvas) arrow(x, y1, y2 float64, stroke string) {
	c.line(x, y1, x, y2-5, stroke, 2, "")
	fmt.Fprintf(&c.b, `<path d="M%.1f %.1f l-5 -8 h10 z" fill="%s"/>`+"\n", x, y2, stroke)
}

func (c *canvas) dot(x, y float64, fill string) {
	fmt.Fprintf(&c.b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`+"\n", x, y, fill)
}

// text writes a text; where is start, middle or end.
func (c *canvas) text(x, y float64, where, fill, weight, text string) {
	fmt.Fprintf(&c.b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s" font-weight="%s">%s</text>`+"\n", x, y, where, fill, weight, escape(text))
}

func (c *canvas) path(points [][2]float64, stroke string) {
	var d strings.Builder
	for i, p := range points {
		fmt.Fprintf(&d, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[i == 0], p[0], p[1])
	}
	fmt.Fprintf(&c.b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", d.String(), stroke)
}

func (c *canvas) write(file string) error {
	return os.WriteFile(file, []byte(c.b.String()+"</svg>\n"), 0o644)
}
