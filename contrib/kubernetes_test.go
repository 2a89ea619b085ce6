package contrib_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/d0720281/redlock/internal/redistest"
)

// build returns the objects of an overlay in kubernetes/, by kind and name, as "kubectl kustomize" makes them.
func build(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join("kubernetes", dir))
	if err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	objects := make(map[string][]byte)
	for _, r := range built.Resources() {
		if got := r.GetNamespace(); got != "redlock" {
			t.Errorf("%s: %s is in the namespace %q, want redlock", dir, r.CurId(), got)
		}
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		objects[r.GetKind()+"/"+r.GetName()] = text
	}
	return objects
}

// the returns the only object of a kind, or of "kind/name". A field that the kind does not have fails the test.
func the[T any](t testing.TB, objects map[string][]byte, name string) (object T) {
	t.Helper()
	found := slices.DeleteFunc(slices.Collect(maps.Keys(objects)), func(n string) bool { return n != name && !strings.HasPrefix(n, name+"/") })
	if len(found) != 1 {
		t.Fatalf("got %q, want one %s", found, name)
	}
	if err := yaml.UnmarshalStrict(objects[found[0]], &object); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return object
}

func file[T any](t testing.TB, name string) T {
	t.Helper()
	return the[T](t, map[string][]byte{name: []byte(read(t, "kubernetes/"+name))}, name)
}

// Each overlay has masters that fail apart, with what the library wants of a master, and tells clients all of them.
func TestKubernetesMasters(t *testing.T) {
	withTLS := t.TempDir() // of five
	here, err := filepath.Abs("kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	if withTLS, err = filepath.Rel(here, withTLS); err != nil {
		t.Fatal(err)
	}
	back, err := filepath.Rel(filepath.Join(here, withTLS), here)
	if err != nil {
		t.Fatal(err)
	}
	overlay := fmt.Sprintf("resources: [%s/five]\ncomponents: [%s/tls]\n", back, back)
	if err := os.WriteFile(filepath.Join(here, withTLS, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, n := range map[string]int{"base": 3, "five": 5, "one-machine": 3, withTLS: 5} {
		objects := build(t, dir)
		set, service := the[appsv1.StatefulSet](t, objects, "StatefulSet"), the[corev1.Service](t, objects, "Service")
		clients := the[corev1.ConfigMap](t, objects, "ConfigMap/redlock").Data
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("%s-%d.%s.redlock.svc:6379", set.Name, i, service.Name))
		}
		spec := set.Spec.Template.Spec
		server, votes := spec.Containers[0], spec.Containers[1]
		apart := spec.Affinity != nil && spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey == "kubernetes.io/hostname"
		allow := the[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy").Spec
		for what, is := range map[string]bool{
			"as many pods as masters":                          int(*set.Spec.Replicas) == n && clients["REDLOCK_MASTERS"] == strings.Join(names, ","),
			"pods with names, also before they are ready":      set.Spec.ServiceName == service.Name && service.Spec.ClusterIP == "None" && service.Spec.PublishNotReadyAddresses,
			"all pods at once, as none is ready before":        set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement,
			"no restart by kubectl apply":                      set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType,
			"masters on machines of their own":                 apart == (dir != "one-machine"),
			"one drained at a time":                            the[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget").Spec.MaxUnavailable.IntValue() == 1,
			"data on a volume":                                 server.VolumeMounts[0].MountPath == "/data" && set.Spec.VolumeClaimTemplates[0].Name == server.VolumeMounts[0].Name,
			"a probe that asks for this master":                slices.Contains(votes.Env, corev1.EnvVar{Name: "REDLOCK_SELF", Value: "$(POD)" + strings.TrimPrefix(names[0], set.Name+"-0")}),
			"the port for masters and clients alone":           len(allow.Ingress) == 1 && allow.Ingress[0].Ports[0].Port.IntValue() == 6379 && len(allow.Ingress[0].From) == 2,
			"the configuration of compose":                     the[corev1.ConfigMap](t, objects, "ConfigMap/redlock-server").Data["redis.conf"] == read(t, "compose/redis.conf"),
			"TLS for servers, their probe and clients or none": slices.Contains(server.Command, "--tls-port") == (dir == withTLS) && slices.Contains(server.ReadinessProbe.Exec.Command, "--tls") == (dir == withTLS) && (clients["REDLOCK_TLS"] == "true") == (dir == withTLS),
		} {
			if !is {
				t.Errorf("%s: want %s", dir, what)
			}
		}
	}
}

// The command lines of probe and jobs are taken by the command, with the environment that clients have.
func TestKubernetesJobs(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	objects := build(t, "five")
	votes := the[appsv1.StatefulSet](t, objects, "StatefulSet").Spec.Template.Spec.Containers[1]
	bootstrap := file[batchv1.Job](t, "init.yaml").Spec.Template
	cron := file[batchv1.CronJob](t, "cronjob.yaml").Spec
	nightly := cron.JobTemplate.Spec.Template
	var env []string
	for name, value := range the[corev1.ConfigMap](t, objects, "ConfigMap/redlock").Data {
		env = append(env, name+"="+value)
	}
	for _, c := range []corev1.Container{votes, bootstrap.Spec.Containers[0], nightly.Spec.Containers[0]} {
		if c.EnvFrom[0].ConfigMapRef.Name != "redlock" || c.Env[0].Name != "REDLOCK_PASSWORD" || c.Env[0].ValueFrom.SecretKeyRef.Key != "password" {
			t.Errorf("%s: got %+v, %+v, want the masters and the password", c.Name, c.EnvFrom, c.Env)
		}
	}
	if bootstrap.Labels["redlock-client"] != "true" || nightly.Labels["redlock-client"] != "true" {
		t.Error("a job lacks the label that the NetworkPolicy asks for")
	}
	probe, args := votes.ReadinessProbe.Exec.Command, nightly.Spec.Containers[0].Args
	if probe[0] != "/redlock" || votes.Args[0] != "watch" {
		t.Errorf("got probe %q, and %q, want redlock doctor and watch", probe, votes.Args)
	}
	if i := slices.Index(args, "--at-least"); i < 0 || args[i+1] != "5m" || *cron.StartingDeadlineSeconds != 300 {
		t.Errorf("got %q, want a lock that is held for as long as another pod may be late", args)
	}
	if *cron.JobTemplate.Spec.BackoffLimit != 0 || nightly.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Error("got a job that is repeated")
	}

	_, addrs := servers(t, 5)
	self := append(env, "REDLOCK_SELF="+addrs[0])
	run(t, addrs, append(slices.Clone(probe[1:]), "--wait", "1m"), self...) // instead of again and again
	run(t, addrs, []string{"acquire", "k", "--ttl", "11s", "--max-ttl", "11s"}, env...)
	run(t, addrs, probe[1:], self...) // the pod stays ready, although there is a warning about max-ttl
	_, addrs = servers(t, 5)
	run(t, addrs, bootstrap.Spec.Containers[0].Args, env...) // without it, the next would find masters without votes
	run(t, addrs, args, env...)
}
