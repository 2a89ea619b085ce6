package main

import (
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

var handlerLocker = &analysis.Analyzer{
	Name: "handlerlocker",
	Doc: `report a Locker that an HTTP handler makes

A Locker has connections to all masters, and a process needs one. If each request makes one, requests of a process
do not wait in one line, and each dials all masters.`,
	Requires: inspected,
	Run:      runHandlerLocker,
}

func runHandlerLocker(pass *analysis.Pass) (any, error) {
	in := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
	in.WithStack([]ast.Node{(*ast.CallExpr)(nil)}, func(n ast.Node, push bool, stack []ast.Node) bool {
		call := n.(*ast.CallExpr)
		f, pkg := calleeOf(pass.TypesInfo, call)
		if !push || f == nil || pkg != "" || !slices.Contains([]string{"New", "NewFromOptions"}, f.Name()) || inTest(pass, call) {
			return true
		}
		for i := len(stack) - 2; i >= 0; i-- { // the innermost function: one inside the handler may run once
			var sig types.Type
			switch outer := stack[i].(type) {
			case *ast.FuncLit:
				sig = pass.TypesInfo.TypeOf(outer)
			case *ast.FuncDecl:
				sig = pass.TypesInfo.TypeOf(outer.Name)
			default:
				continue
			}
			if isHandler(sig) {
				pass.ReportRangef(call, "each request makes a Locker, which dials all masters: make one per process")
			}
			return true
		}
		return true
	})
	return nil, nil
}

func isHandler(t types.Type) bool {
	sig, ok := t.(*types.Signature)
	return ok && sig.Params().Len() == 2 && sig.Params().At(0).Type().String() == "net/http.ResponseWriter" &&
		sig.Params().At(1).Type().String() == "*net/http.Request"
}
