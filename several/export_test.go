package several

// Join makes one lease of parts, without the options of a call.
var Join = (*terms)(nil).Whole
