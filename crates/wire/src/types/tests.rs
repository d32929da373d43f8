use super::*;

fn schema() -> &'static Schema {
    Schema::get().expect("the committed file is indexed")
}

#[test]
fn every_line_is_understood() {
    let schema = schema();
    let mut lines = 0;
    for id in schema.ids() {
        let of = schema.at(id).unwrap();
        let fields = schema.fields(id).unwrap_or_else(|error| panic!("{}.{}: {error}", of.package, of.name));
        of.attributes().unwrap_or_else(|error| panic!("{}.{}: {error}", of.package, of.name));
        for field in &fields {
            let said = field.attributes().unwrap_or_else(|| panic!("{}.{}.{}", of.package, of.name, field.name));
            if let Some(json) = said.default {
                serde_json::from_str::<serde::de::IgnoredAny>(json).unwrap();
            }
        }
        lines += fields.len() + 1;
    }
    let wanted = TEXT.lines().filter(|line| {
        let word = line.split(' ').next().unwrap_or_default();
        !matches!(word, "" | "#" | "package" | "also")
    });
    assert_eq!(lines, wanted.count());
}

#[test]
fn a_field_says_what_both_forms_need() {
    let schema = schema();
    let find = |api_version: &str, kind: &str, name: &str| {
        let fields = schema.fields(schema.kind(api_version, kind).unwrap()).unwrap();
        *fields.iter().find(|field| field.name == name).unwrap()
    };
    let type_meta = find("v1", "Pod", "TypeMeta");
    assert_eq!((type_meta.number, type_meta.mark), (None, Mark::InPlace));
    assert_eq!(find("v1", "Secret", "data").value, Value::Bytes);
    assert_eq!(find("v1", "Secret", "data").shape, Shape::Map);
    assert_eq!(find("v1", "Secret", "type").go, Some("v1.SecretType"));
    assert_eq!(find("rbac.authorization.k8s.io/v1", "Role", "rules").number, Some(2));

    let claim = schema.fields(schema.named("core.v1", "PersistentVolumeClaimSpec").unwrap()).unwrap();
    let modes = claim.iter().find(|field| field.name == "accessModes").unwrap();
    assert_eq!((modes.go, modes.item_go), (None, Some("v1.PersistentVolumeAccessMode")));
    assert_eq!(modes.attributes().unwrap().list, Some(ListType::Atomic));

    let ports = schema.fields(schema.named("core.v1", "Container").unwrap()).unwrap();
    let ports = ports.iter().find(|field| field.name == "ports").unwrap().attributes().unwrap();
    assert_eq!((ports.list, ports.merge), (Some(ListType::Map("containerPort,protocol")), Some(Some("containerPort"))));
}

#[test]
fn kinds_of_other_packages_are_found() {
    let schema = schema();
    let status = schema.at(schema.kind("v1", "Status").unwrap()).unwrap();
    assert_eq!((status.package, status.name), ("io.k8s.apimachinery.pkg.apis.meta.v1", "Status"));
    assert_eq!(schema.kind("example.com/v1", "DeleteOptions"), schema.named("meta.v1", "DeleteOptions"));
    assert!(schema.kind("example.com/v1", "Status").is_none());
}

#[test]
fn a_broken_file_is_refused() {
    for (text, wanted) in [
        ("package a.b.v1 v1\nhello x\n", SchemaError::Line(2)),
        ("package a.b.v1 v1\nalso v1 X meta.v1.X\n", SchemaError::Undefined("meta.v1.X".to_owned())),
    ] {
        assert_eq!(Schema::index(text).unwrap_err(), wanted);
    }
    let schema = Schema::index("# a\npackage a.b.v1 v1\nkind X\n1 a string\nb string\n").unwrap_err();
    assert_eq!(schema, SchemaError::Line(5));
    for (text, wanted) in [
        ("package a.b.v1 v1\nkind X\n1 a? string\n2 b\n", SchemaError::Line(4)),
        ("package a.b.v1 v1\nkind X\n1 a? Y\n", SchemaError::Undefined("Y".to_owned())),
    ] {
        let schema = Schema::index(text).unwrap();
        assert_eq!(schema.fields(schema.kind("v1", "X").unwrap()).unwrap_err(), wanted);
    }
}
