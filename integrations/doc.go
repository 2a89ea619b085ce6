// Package integrations has no code: its tests run what the library has for others with those
// others, gocron and robfig/cron, so that the library need not depend on them.
package integrations
