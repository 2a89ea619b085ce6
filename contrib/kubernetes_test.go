package contrib_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/d0720281/redlock/internal/redistest"
)

// node is a part of a manifest.
type node map[string]any

// at returns the value at a path of keys, and of indexes of lists; nil if there is none.
func (n node) at(path ...any) any {
	var v any = map[string]any(n)
	for _, p := range path {
		switch key := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[key]
		case int:
			list, _ := v.([]any)
			if key >= len(list) {
				return nil
			}
			v = list[key]
		}
	}
	return v
}

func (n node) text(path ...any) string { return fmt.Sprint(n.at(path...)) }

func (n node) list(path ...any) (list []string) {
	values, _ := n.at(path...).([]any)
	for _, v := range values {
		list = append(list, fmt.Sprint(v))
	}
	return list
}

// manifests is the objects of a kind in a file.
func manifests(t testing.TB, path, kind string) (found []node) {
	t.Helper()
	for d := yaml.NewDecoder(strings.NewReader(read(t, path))); ; {
		var object map[string]any
		err := d.Decode(&object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if object["kind"] == kind {
			found = append(found, node(object))
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s: got no %s, want one", path, kind)
	}
	return found
}

const (
	mastersFile = "kubernetes/masters.yaml"
	initFile    = "kubernetes/init.yaml"
	cronFile    = "kubernetes/cronjob.yaml"
)

func secret(t testing.TB, key string) string {
	t.Helper()
	return manifests(t, mastersFile, "Secret")[0].text("stringData", key)
}

// want checks single values of an object.
func (n node) want(t testing.TB, values map[string]any) {
	t.Helper()
	for path, want := range values {
		var keys []any
		for part := range strings.SplitSeq(path, "/") {
			if n, err := strconv.Atoi(part); err == nil {
				keys = append(keys, n)
			} else {
				keys = append(keys, part)
			}
		}
		if got := n.at(keys...); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s %s: %s: got %v, want %v", n.text("kind"), n.text("metadata", "name"), path, got, want)
		}
	}
}

// There are five masters that fail apart, with what the library wants of a master.
func TestKubernetesMasters(t *testing.T) {
	sets := manifests(t, mastersFile, "StatefulSet")
	if len(sets) != 5 {
		t.Errorf("got %d StatefulSets, want 5", len(sets))
	}
	label := fmt.Sprint(map[string]any{"app": "redlock-master"})
	for i, s := range sets {
		name := fmt.Sprint("redlock-", i+1)
		pod := "spec/template/spec/"
		s.want(t, map[string]any{
			"metadata/name":                 name,
			"spec/replicas":                 1,
			"spec/serviceName":              manifests(t, mastersFile, "Service")[0].at("metadata", "name"),
			"spec/updateStrategy/type":      "OnDelete", // or all five would restart with one kubectl apply
			"spec/selector/matchLabels":     map[string]any{"app": "redlock-master", "master": fmt.Sprint(i + 1)},
			"spec/template/metadata/labels": map[string]any{"app": "redlock-master", "master": fmt.Sprint(i + 1)},
			pod + "affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/topologyKey":               "kubernetes.io/hostname",
			pod + "affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/labelSelector/matchLabels": label,
			pod + "containers/0/command":                          []any{"redis-server", "/etc/redis/redis.conf"},
			pod + "containers/0/volumeMounts/0/mountPath":         "/data",
			pod + "containers/0/volumeMounts/0/name":              "data",
			"spec/volumeClaimTemplates/0/metadata/name":           "data",
			"spec/volumeClaimTemplates/0/spec/accessModes":        []any{"ReadWriteOnce"},
			pod + "containers/0/readinessProbe/exec/command":      []any{"redis-cli", "--user", "redlock", "ping"},
			pod + "containers/0/env/0/valueFrom/secretKeyRef/key": "password",
		})
	}
	if got, want := manifests(t, mastersFile, "ConfigMap")[0].text("data", "redis.conf"), read(t, "compose/redis.conf"); got != want {
		t.Errorf("redis.conf: got %q, want that of compose: %q", got, want)
	}
	manifests(t, mastersFile, "PodDisruptionBudget")[0].want(t, map[string]any{"spec/maxUnavailable": 1, "spec/selector/matchLabels": label})
	manifests(t, mastersFile, "Service")[0].want(t, map[string]any{"spec/clusterIP": "None", "spec/selector": label, "spec/publishNotReadyAddresses": true})
}

// The jobs name all masters, and their command lines are taken by the command.
func TestKubernetesJobs(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	var names []string
	service := manifests(t, mastersFile, "Service")[0]
	for _, s := range manifests(t, mastersFile, "StatefulSet") {
		names = append(names, fmt.Sprintf("%s-0.%s.%s.svc:%s", s.text("metadata", "name"), service.text("metadata", "name"), s.text("metadata", "namespace"), service.text("spec", "ports", 0, "port")))
	}
	bootstrap, cron := manifests(t, initFile, "Job")[0], manifests(t, cronFile, "CronJob")[0]
	for i, s := range manifests(t, mastersFile, "StatefulSet") { // the sidecar asks for the pod's own master
		var sidecar node = s.at("spec", "template", "spec", "containers", 1).(map[string]any)
		sidecar.want(t, map[string]any{"env/0/name": "REDLOCK_MASTERS", "env/0/value": strings.Join(names, ","), "env/1/name": "REDLOCK_PASSWORD"})
		probe := sidecar.list("readinessProbe", "exec", "command")
		if len(probe) < 3 || probe[0] != "/redlock" || probe[1] != "doctor" || probe[2] != names[i] {
			t.Errorf("got probe %q, want redlock doctor for %s", probe, names[i])
		}
		if i == 0 {
			_, addrs := servers(t, 5)
			probe[2] = addrs[0]
			run(t, addrs, append(probe[1:], "--wait", "1m")) // instead of again and again
			run(t, addrs, []string{"acquire", "k", "--ttl", "11s", "--max-ttl", "11s", "--user", "redlock"})
			run(t, addrs, probe[1:]) // the pod stays ready, although there is a warning about max-ttl
			if got := sidecar.list("args"); len(got) < 2 || got[0] != "watch" {
				t.Errorf("got %q, want watch", got)
			}
		}
	}
	containers := []node{
		bootstrap.at("spec", "template", "spec", "containers", 0).(map[string]any),
		cron.at("spec", "jobTemplate", "spec", "template", "spec", "containers", 0).(map[string]any),
	}
	for _, c := range containers {
		c.want(t, map[string]any{
			"env/0/name": "REDLOCK_MASTERS", "env/0/value": strings.Join(names, ","),
		})
		if got, want := c.text("env", 1, "name"), "REDLOCK_PASSWORD"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	args := containers[1].list("args")
	if i := slices.Index(args, "--at-least"); i < 0 || args[i+1] != "5m" || cron.text("spec", "startingDeadlineSeconds") != "300" {
		t.Errorf("got %q, want a lock that is held for as long as another pod may be late", args)
	}
	cron.want(t, map[string]any{"spec/jobTemplate/spec/backoffLimit": 0, "spec/jobTemplate/spec/template/spec/restartPolicy": "Never"})
	_, addrs := servers(t, 5)
	for _, c := range containers { // in this order: without the first, the second would find masters without votes
		args := c.list("args")
		if !slices.Contains(args, "redlock") {
			t.Errorf("%q: got no user, want redlock", args)
		}
		run(t, addrs, args)
	}
}
