package results

import "math"

// luminance is the relative luminance of a colour.
// Source: WCAG 2.1, "relative luminance".
func luminance(r, g, b uint8) float64 {
	linear := func(c uint8) float64 {
		v := float64(c) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(r) + 0.7152*linear(g) + 0.0722*linear(b)
}

// contrast is the ratio of two luminances.
// Source: WCAG 2.1, "contrast ratio"; 4.5 is wanted of text.
func contrast(a, b float64) float64 {
	return (max(a, b) + 0.05) / (min(a, b) + 0.05)
}
