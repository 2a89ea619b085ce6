// Package integrations has tests only. They run packages election and jobs with real schedulers,
// gocron and robfig/cron, so that the library need not depend on them. The adapters in
// adapters_test.go are for copying.
package integrations
