package integrations

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"encoding/pem"
	"errors"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"go.uber.org/zap"

	"github.com/d0720281/redlock/internal/redistest"
)

// database of goose in memory: what has been migrated. Its transactions do nothing.
type versions struct {
	mu   sync.Mutex
	list []int64
}

func (v *versions) Tablename() string                                           { return "versions" }
func (v *versions) CreateVersionTable(context.Context, database.DBTxConn) error { return nil }

func (v *versions) Insert(_ context.Context, _ database.DBTxConn, req database.InsertRequest) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.list = append(v.list, req.Version)
	return nil
}

func (v *versions) Delete(context.Context, database.DBTxConn, int64) error {
	return errors.ErrUnsupported
}

func (v *versions) GetMigration(_ context.Context, _ database.DBTxConn, version int64) (*database.GetMigrationResult, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, have := range v.list {
		if have == version {
			return &database.GetMigrationResult{IsApplied: true}, nil
		}
	}
	return nil, database.ErrVersionNotFound
}

func (v *versions) GetLatestVersion(context.Context, database.DBTxConn) (int64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.list) == 0 {
		return 0, database.ErrVersionNotFound
	}
	return v.list[len(v.list)-1], nil
}

func (v *versions) ListMigrations(context.Context, database.DBTxConn) (list []*database.ListMigrationsResult, _ error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := len(v.list) - 1; i >= 0; i-- {
		list = append(list, &database.ListMigrationsResult{Version: v.list[i], IsApplied: true})
	}
	return list, nil
}

func (v *versions) Connect(context.Context) (driver.Conn, error) { return v, nil }
func (v *versions) Driver() driver.Driver                        { return nil }
func (v *versions) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (v *versions) Close() error                                 { return nil }
func (v *versions) Begin() (driver.Tx, error)                    { return v, nil }
func (v *versions) Commit() error                                { return nil }
func (v *versions) Rollback() error                              { return nil }

// Three machines are deployed at once, and each migration runs on one of them, although it takes several TTLs.
func TestGooseOnce(outer *testing.T) {
	t := redistest.Timed(outer)
	addrs, _ := start(t)
	var store versions
	var runs [2]atomic.Int32
	migration := func(i int) *goose.Migration {
		return goose.NewGoMigration(int64(i+1), &goose.GoFunc{RunTx: func(context.Context, *sql.Tx) error {
			runs[i].Add(1)
			time.Sleep(2 * ttl) // the work
			return nil
		}}, nil)
	}
	var machines sync.WaitGroup
	for range 3 {
		db := sql.OpenDB(&store)
		defer db.Close()
		provider, err := goose.NewProvider(goose.DialectCustom, db, nil, goose.WithStore(&store), goose.WithLocker(&gooseLocker{locker: open(t, addrs), name: "migrations"}),
			goose.WithGoMigrations(migration(0), migration(1)), goose.WithDisableGlobalRegistry(true))
		must(t, err)
		machines.Go(func() {
			if _, err := provider.Up(t.Context()); err != nil {
				t.Errorf("Up: %v", err)
			}
		})
	}
	machines.Wait()
	for i := range runs {
		if got := runs[i].Load(); got != 1 {
			t.Errorf("migration %d: got %d runs, want 1", i+1, got)
		}
	}
}

// issuer signs certificates, and counts them.
type issuer struct {
	key    *ecdsa.PrivateKey
	issued atomic.Int32
}

func (i *issuer) IssuerKey() string { return "test" }

func (i *issuer) Issue(_ context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	time.Sleep(2 * ttl) // a real one takes longer
	cert := &x509.Certificate{SerialNumber: big.NewInt(int64(i.issued.Add(1))), DNSNames: request.DNSNames, NotBefore: time.Now(), NotAfter: time.Now().Add(90 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, request.PublicKey, i.key)
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, err
}

// Three machines need a certificate at once, and one of them gets it from the issuer.
func TestCertmagicOnce(outer *testing.T) {
	t := redistest.Timed(outer)
	addrs, _ := start(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	ca := &issuer{key: key}
	files := &certmagic.FileStorage{Path: t.TempDir()}
	var machines sync.WaitGroup
	for range 3 {
		config := certmagic.Config{Storage: &certStorage{Storage: files, locker: open(t, addrs)}, Issuers: []certmagic.Issuer{ca}, Logger: zap.NewNop()}
		cache := certmagic.NewCache(certmagic.CacheOptions{
			GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return &config, nil },
			Logger:           zap.NewNop(),
		})
		defer cache.Stop()
		magic := certmagic.New(cache, config)
		machines.Go(func() {
			if err := magic.ObtainCertSync(t.Context(), "example.com"); err != nil {
				t.Errorf("ObtainCertSync: %v", err)
			}
		})
	}
	machines.Wait()
	if got := ca.issued.Load(); got != 1 {
		t.Errorf("got %d certificates of the issuer, want 1", got)
	}
}
